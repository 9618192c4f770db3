// Sequences of tokens, each with a value, as a radix tree: what several begin with is kept once. Finding takes one walk along the
// tokens whatever the number of sequences. Owns tokens and values; references to values stay good until they are erased. One
// thread; does not fail.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "engine/types.h"

namespace pocketfleet {

template <typename Value>
class TokenTrie {
 public:
  // Replaces the value of a sequence that is there already. The empty sequence is one too.
  Value& insert(std::span<const Token> tokens, Value value) {
    Node* node = &root_;
    while (!tokens.empty()) {
      const auto child = node->children.find(tokens.front());
      if (child == node->children.end()) {
        auto leaf = std::make_unique<Node>();
        leaf->parent = node;
        leaf->edge.assign(tokens.begin(), tokens.end());
        Node* made = leaf.get();
        node->children.emplace(tokens.front(), std::move(leaf));
        tokens_ += tokens.size();
        node = made;
        break;
      }
      const size_t shared = common(child->second->edge, tokens);
      node = shared == child->second->edge.size() ? child->second.get() : split(child->second, shared);
      tokens = tokens.subspan(shared);
    }
    if (!node->value) ++count_;
    node->value = std::move(value);
    return *node->value;
  }

  // False when there is no such sequence.
  bool erase(std::span<const Token> tokens) {
    Node* node = exactly(tokens);
    if (node == nullptr || !node->value) return false;
    node->value.reset();
    --count_;
    tidy(node);
    return true;
  }

  Value* find(std::span<const Token> tokens) {
    Node* node = exactly(tokens);
    return node != nullptr && node->value ? &*node->value : nullptr;
  }
  const Value* find(std::span<const Token> tokens) const { return const_cast<TokenTrie*>(this)->find(tokens); }

  // The longest sequence that `tokens` begin with and that is shorter than `below`; its value and length.
  std::optional<std::pair<const Value*, size_t>> longest(std::span<const Token> tokens, size_t below) const {
    std::optional<std::pair<const Value*, size_t>> best;
    walk(tokens, [&](const Node& node, size_t depth) {
      if (node.value && depth < below) best = std::make_pair(&*node.value, depth);
    });
    return best;
  }

  // How many first tokens of `tokens` are the beginning of some sequence, and the value of one that shares them.
  std::pair<size_t, const Value*> shared(std::span<const Token> tokens) const {
    const auto [depth, node] = walk(tokens, [](const Node&, size_t) {});
    // Every leaf has a value.
    const Node* below = node;
    while (!below->value && !below->children.empty()) below = below->children.begin()->second.get();
    return {depth, below->value ? &*below->value : nullptr};
  }

  size_t count() const { return count_; }
  size_t tokens() const { return tokens_; }  // that are kept
  void clear() {
    root_.children.clear();
    root_.value.reset();
    count_ = 0;
    tokens_ = 0;
  }

 private:
  struct Node {
    Node* parent = nullptr;
    Tokens edge;  // from the parent to here; its first token is the key
    std::map<Token, std::unique_ptr<Node>> children;
    std::optional<Value> value;
  };

  static size_t common(std::span<const Token> a, std::span<const Token> b) {
    const size_t limit = std::min(a.size(), b.size());
    return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(limit), b.begin()).first -
                               a.begin());
  }

  // Calls visit(node, depth) for every node on the way, the root first. Returns the depth reached and the node at or below it.
  template <typename Visit>
  std::pair<size_t, const Node*> walk(std::span<const Token> tokens, Visit visit) const {
    const Node* node = &root_;
    size_t depth = 0;
    visit(*node, depth);
    while (depth < tokens.size()) {
      const auto child = node->children.find(tokens[depth]);
      if (child == node->children.end()) break;
      node = child->second.get();
      const size_t shared = common(node->edge, tokens.subspan(depth));
      depth += shared;
      if (shared < node->edge.size()) return {depth, node};
      visit(*node, depth);
    }
    return {depth, node};
  }

  Node* exactly(std::span<const Token> tokens) {
    const Node* found = nullptr;
    walk(tokens, [&](const Node& node, size_t depth) { found = depth == tokens.size() ? &node : nullptr; });
    return const_cast<Node*>(found);
  }

  // Puts a node in the middle of an edge and returns it.
  static Node* split(std::unique_ptr<Node>& place, size_t at) {
    auto lower = std::move(place);
    auto upper = std::make_unique<Node>();
    const auto middle = lower->edge.begin() + static_cast<std::ptrdiff_t>(at);
    upper->parent = lower->parent;
    upper->edge.assign(lower->edge.begin(), middle);
    lower->edge.erase(lower->edge.begin(), middle);
    lower->parent = upper.get();
    const Token key = lower->edge.front();
    upper->children.emplace(key, std::move(lower));
    place = std::move(upper);
    return place.get();
  }

  // Removes what holds nothing, and joins edges that need no node between them.
  void tidy(Node* node) {
    while (node != &root_ && !node->value && node->children.empty()) {
      Node* parent = node->parent;
      tokens_ -= node->edge.size();
      parent->children.erase(parent->children.find(node->edge.front()));
      node = parent;
    }
    if (node == &root_ || node->value || node->children.size() != 1) return;
    std::unique_ptr<Node> only = std::move(node->children.begin()->second);
    only->edge.insert(only->edge.begin(), node->edge.begin(), node->edge.end());
    only->parent = node->parent;
    node->parent->children.find(node->edge.front())->second = std::move(only);
  }

  Node root_;
  size_t count_ = 0;
  size_t tokens_ = 0;
};

}  // namespace pocketfleet
