#include "engine/label_trie.h"

#include <algorithm>
#include <cmath>

namespace pocketfleet {

LabelTrie::LabelTrie(const std::vector<Tokens>& labels) {
  nodes_.emplace_back();
  // A label needs the end token only where another label goes on from it.
  std::vector<Tokens> closed = labels;
  for (size_t a = 0; a < labels.size(); ++a) {
    const bool is_beginning = std::any_of(labels.begin(), labels.end(), [&](const Tokens& other) {
      return other.size() > labels[a].size() && std::equal(labels[a].begin(), labels[a].end(), other.begin());
    });
    if (is_beginning) closed[a].push_back(kEndOfAnswer);
  }
  for (const Tokens& label : closed) {
    int node = 0;
    for (const Token token : label) {
      const auto found = nodes_[node].children.find(token);
      if (found != nodes_[node].children.end()) {
        node = found->second;
        continue;
      }
      const int made = static_cast<int>(nodes_.size());
      nodes_[node].children.emplace(token, made);
      nodes_.emplace_back();
      node = made;
    }
  }
  for (Node& node : nodes_) {
    if (node.children.size() < 2) continue;
    node.branch = static_cast<int>(branches_.size());
    Branch branch;
    for (const auto& [token, next] : node.children) {
      branch.choices.push_back(token);
      branch.next.push_back(next);
    }
    branches_.push_back(std::move(branch));
  }
  for (const Tokens& label : closed) {
    std::vector<std::pair<int, int>> route;
    int node = 0;
    for (const Token token : label) {
      const int next = nodes_[node].children.at(token);
      if (const int branch = nodes_[node].branch; branch >= 0) {
        const auto& choices = branches_[branch].choices;
        route.emplace_back(branch, static_cast<int>(std::lower_bound(choices.begin(), choices.end(), token) - choices.begin()));
      }
      node = next;
    }
    routes_.push_back(std::move(route));
  }
  root_branch_ = nodes_[0].branch;
  Tokens path;
  std::vector<std::pair<size_t, int>> ask;
  std::vector<bool> asked(branches_.size(), false);
  if (root_branch_ >= 0) asked[root_branch_] = true;
  collect(0, path, ask, asked);
}

void LabelTrie::collect(int node, Tokens& path, std::vector<std::pair<size_t, int>>& ask, std::vector<bool>& asked) {
  const bool added = nodes_[node].branch >= 0 && !asked[nodes_[node].branch];
  if (added) ask.emplace_back(path.size(), nodes_[node].branch);
  bool branches_below = false;
  for (const auto& [token, next] : nodes_[node].children) {
    // Only nodes that lead to a further branch have to be read.
    std::vector<int> stack{next};
    bool leads = false;
    while (!stack.empty() && !leads) {
      const int at = stack.back();
      stack.pop_back();
      leads = nodes_[at].branch >= 0;
      for (const auto& child : nodes_[at].children) stack.push_back(child.second);
    }
    if (!leads) continue;
    branches_below = true;
    path.push_back(token);
    collect(next, path, ask, asked);
    path.pop_back();
  }
  if (!branches_below) {
    Path made;
    for (const auto& [position, branch] : ask) {
      if (asked[branch]) continue;
      asked[branch] = true;
      made.ask.emplace_back(position, branch);
    }
    if (!made.ask.empty()) {
      made.tokens.assign(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(made.ask.back().first));
      paths_.push_back(std::move(made));
    }
  }
  if (added) ask.pop_back();
}

std::vector<double> LabelTrie::combine(const std::vector<std::vector<double>>& log_probabilities) const {
  std::vector<double> out;
  out.reserve(routes_.size());
  double sum = 0;
  for (const auto& route : routes_) {
    double log_probability = 0;
    for (const auto& [branch, choice] : route) log_probability += log_probabilities[branch][choice];
    out.push_back(std::exp(log_probability));
    sum += out.back();
  }
  // The products sum to 1 but for rounding; make it exact to the last digit that a double holds.
  if (sum > 0) {
    for (double& p : out) p /= sum;
  }
  return out;
}

std::vector<double> log_softmax_over(const float* logits, std::span<const Token> choices, std::span<const Token> ends) {
  std::vector<double> values;
  values.reserve(choices.size());
  for (const Token token : choices) {
    if (token != kEndOfAnswer) {
      values.push_back(logits[token]);
      continue;
    }
    double likeliest = -INFINITY;
    for (const Token end : ends) likeliest = std::max(likeliest, static_cast<double>(logits[end]));
    values.push_back(likeliest);
  }
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += std::exp(value - largest);
  for (double& value : values) value -= largest + std::log(sum);
  return values;
}

}  // namespace pocketfleet
