// The allowed labels as a tree of tokens. Where labels part, the model is asked for the probabilities of the branches only; a
// label's probability is the product along its path. A label that is the beginning of another ends with an end token there. Pure.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "engine/types.h"

namespace pocketfleet {

// Stands in a branch for "the answer ends here": any of the model's end-of-generation tokens.
constexpr Token kEndOfAnswer = -1;

class LabelTrie {
 public:
  struct Branch {
    std::vector<Token> choices;  // the tokens that may follow, ascending
    std::vector<int> next;       // for each: the node reached
  };
  // A path of tokens to read after the prompt. `ask`: pairs (position in path, branch): the logits after path[0..position) decide
  // that branch. Position 0 means the logits of the prompt's last token.
  struct Path {
    Tokens tokens;
    std::vector<std::pair<size_t, int>> ask;
  };

  // Labels must be distinct and no fewer than two. Where one is the beginning of another, kEndOfAnswer tells them apart.
  explicit LabelTrie(const std::vector<Tokens>& labels);

  const std::vector<Branch>& branches() const { return branches_; }
  // What has to be read beyond the prompt so that every branch is asked once; empty when the prompt's last logits decide all.
  // Every branch stands in exactly one path, or is the root branch (asked at the prompt's end), which stands in none.
  const std::vector<Path>& paths() const { return paths_; }
  // The branch that the logits after the prompt decide, always 0 when labels part at once; -1 when they share their first tokens.
  int root_branch() const { return root_branch_; }

  // `log_probabilities[branch][choice]`: log-softmax over the choices of each branch. Returns a probability for every label.
  std::vector<double> combine(const std::vector<std::vector<double>>& log_probabilities) const;

 private:
  struct Node {
    std::map<Token, int> children;
    int branch = -1;  // set when it has two children or more
  };
  void collect(int node, Tokens& path, std::vector<std::pair<size_t, int>>& ask, std::vector<bool>& asked);

  std::vector<Node> nodes_;
  std::vector<Branch> branches_;
  std::vector<Path> paths_;
  std::vector<std::vector<std::pair<int, int>>> routes_;  // for each label: (branch, choice)
  int root_branch_ = -1;
};

// log-softmax of the chosen logits alone; kEndOfAnswer counts as the likeliest of `ends`.
std::vector<double> log_softmax_over(const float* logits, std::span<const Token> choices, std::span<const Token> ends);

}  // namespace pocketfleet
