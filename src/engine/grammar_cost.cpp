// How many ways lead on from each place of a GBNF grammar. llama.cpp follows all of them for every token, and before that for the
// first one, so a short text of rules that double each other would hold a thread for ever.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/grammar.h"

namespace pocketfleet {

namespace {

constexpr size_t kMany = 1u << 20;      // sums stop here
constexpr size_t kMostRulesDeep = 512;  // rules that begin with rules; each costs stack

// Ways to begin with a character, and ways to be empty.
struct Cost {
  size_t begins = 0;
  size_t empty = 0;
};

size_t capped(size_t value) {
  return std::min(value, kMany);
}

struct Node {
  enum class Kind { kLetter, kNothing, kRule, kSequence, kChoice, kRepeat } kind = Kind::kNothing;
  size_t rule = 0;
  std::vector<size_t> children;
  size_t least = 0;
  size_t most = 0;  // 0: no end
};

tl::unexpected<Error> bad(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message), "grammar");
}

bool is_word(char c) {
  return isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

class Graph {
 public:
  Graph(std::string_view text, const GrammarLimits& limits) : text_(text), limits_(limits) {}

  Result<void> check() {
    for (skip(); at_ < text_.size(); skip()) {
      const std::string name = word();
      skip();
      if (name.empty() || !text_.substr(at_).starts_with("::="))
        return bad(fmt::format("the grammar cannot be read at byte {}", at_));
      at_ += 3;
      const size_t rule = rule_index(name);
      PF_TRY(const size_t body, choice());
      if (at_ < text_.size() && text_[at_] == ')') return bad("the grammar closes a group that is not open");
      bodies_[rule] = body;
    }
    costs_.resize(bodies_.size());
    states_.resize(bodies_.size());
    for (size_t rule = 0; rule < bodies_.size(); ++rule) PF_CHECK_OK(rule_cost(rule, 0));
    for (const Node& node : nodes_) {
      if (node.kind == Node::Kind::kSequence) PF_CHECK_OK(check_places(node));
    }
    return {};
  }

 private:
  size_t rule_index(const std::string& name) {
    const auto [found, fresh] = names_.try_emplace(name, bodies_.size());
    if (fresh) bodies_.push_back(kUndefined);
    return found->second;
  }

  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string word() {
    const size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return std::string(text_.substr(start, at_ - start));
  }

  bool at_rule_start() {
    const size_t start = at_;
    const bool named = !word().empty();
    skip();
    const bool starts = named && text_.substr(at_).starts_with("::=");
    at_ = start;
    return starts;
  }

  size_t add(Node node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  Result<size_t> choice() {
    Node node{Node::Kind::kChoice, 0, {}, 0, 0};
    for (;;) {
      PF_TRY(const size_t part, sequence());
      node.children.push_back(part);
      if (at_ >= text_.size() || text_[at_] != '|') return add(std::move(node));
      ++at_;
    }
  }

  Result<size_t> sequence() {
    Node node{Node::Kind::kSequence, 0, {}, 0, 0};
    for (skip(); at_ < text_.size(); skip()) {
      const char c = text_[at_];
      if (c == '|' || c == ')') break;
      if (is_word(c)) {
        if (at_rule_start()) break;
        node.children.push_back(add({Node::Kind::kRule, rule_index(word()), {}, 0, 0}));
      } else if (c == '"' || c == '[') {
        node.children.push_back(quoted(c == '"' ? '"' : ']'));
      } else if (c == '.') {
        ++at_;
        node.children.push_back(add({Node::Kind::kLetter, 0, {}, 0, 0}));
      } else if (c == '<' || c == '!') {
        while (at_ < text_.size() && text_[at_] != '>') ++at_;
        if (at_ < text_.size()) ++at_;
        node.children.push_back(add({Node::Kind::kLetter, 0, {}, 0, 0}));
      } else if (c == '(') {
        ++at_;
        PF_TRY(const size_t inside, choice());
        if (at_ >= text_.size() || text_[at_] != ')') return bad("the grammar leaves a group open");
        ++at_;
        node.children.push_back(inside);
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (node.children.empty()) return bad("the grammar repeats nothing");
        Node repeat{Node::Kind::kRepeat, 0, {node.children.back()}, 0, 0};
        read_repeat(repeat);
        node.children.back() = add(std::move(repeat));
      } else {
        return bad(fmt::format("the grammar cannot be read at byte {}", at_));
      }
    }
    return add(std::move(node));
  }

  // A text or a class: its first character counts.
  size_t quoted(char closing) {
    bool any = closing == ']';
    for (++at_; at_ < text_.size() && text_[at_] != closing; ++at_) {
      any = true;
      if (text_[at_] == '\\') ++at_;
    }
    if (at_ < text_.size()) ++at_;
    return add({any ? Node::Kind::kLetter : Node::Kind::kNothing, 0, {}, 0, 0});
  }

  void read_repeat(Node& repeat) {
    const char c = text_[at_++];
    if (c != '{') {
      repeat.least = c == '+' ? 1 : 0;
      repeat.most = c == '?' ? 1 : 0;
      return;
    }
    std::vector<size_t> numbers{0};
    bool last_empty = true;
    for (; at_ < text_.size() && text_[at_] != '}'; ++at_) {
      if (text_[at_] == ',') {
        numbers.push_back(0);
        last_empty = true;
      } else if (text_[at_] >= '0' && text_[at_] <= '9') {
        numbers.back() = capped(numbers.back() * 10 + static_cast<size_t>(text_[at_] - '0'));
        last_empty = false;
      }
    }
    if (at_ < text_.size()) ++at_;
    repeat.least = numbers.front();
    repeat.most = last_empty ? 0 : numbers.back();
    if (!last_empty && repeat.most == 0) repeat.kind = Node::Kind::kNothing;
  }

  Result<Cost> rule_cost(size_t rule, size_t depth) {
    if (bodies_[rule] == kUndefined) return bad("the grammar uses a rule that it does not define");
    if (states_[rule] == State::kDone) return costs_[rule];
    if (states_[rule] == State::kOpen) return bad("a rule of the grammar begins with itself (left recursion)");
    if (depth > kMostRulesDeep)
      return bad(fmt::format("more than {} rules of the grammar begin with one another", kMostRulesDeep));
    states_[rule] = State::kOpen;
    PF_TRY(costs_[rule], cost(bodies_[rule], depth + 1));
    states_[rule] = State::kDone;
    return costs_[rule];
  }

  Result<Cost> cost(size_t index, size_t depth) {
    const Node& node = nodes_[index];
    Cost out;
    switch (node.kind) {
      case Node::Kind::kLetter:
        return Cost{1, 0};
      case Node::Kind::kNothing:
        return Cost{0, 1};
      case Node::Kind::kRule:
        return rule_cost(node.rule, depth);
      case Node::Kind::kChoice:
        for (const size_t child : node.children) {
          PF_TRY(const Cost one, cost(child, depth));
          out = {capped(out.begins + one.begins), capped(out.empty + one.empty)};
        }
        break;
      case Node::Kind::kSequence:
        out.empty = 1;
        for (const size_t child : node.children) {
          PF_TRY(const Cost one, cost(child, depth));
          out.begins = capped(out.begins + out.empty * one.begins);
          out.empty = capped(out.empty * one.empty);
          if (out.empty == 0) break;
        }
        break;
      case Node::Kind::kRepeat: {
        PF_TRY(out, cost(node.children[0], depth));
        if (out.empty > 0 && node.most != 1) return bad("the grammar repeats something that can be empty");
        if (node.least == 0) ++out.empty;
        break;
      }
    }
    if (out.begins > limits_.beginnings) {
      return bad(
          fmt::format("a place in the grammar can go on in more than {} ways; make the choices fewer", limits_.beginnings));
    }
    if (out.empty > 1) return bad("a part of the grammar can be empty in more than one way");
    return out;
  }

  // All places behind an element, not only the beginning.
  Result<void> check_places(const Node& node) {
    size_t begins = 0;
    for (size_t at = node.children.size(); at-- > 0;) {
      PF_TRY(const Cost one, cost(node.children[at], 0));
      begins = one.begins + (one.empty > 0 ? begins : 0);
      if (begins > limits_.beginnings) {
        return bad(
            fmt::format("a place in the grammar can go on in more than {} ways; make the choices fewer", limits_.beginnings));
      }
    }
    return {};
  }

  enum class State : char { kNew, kOpen, kDone };
  static constexpr size_t kUndefined = static_cast<size_t>(-1);

  std::string_view text_;
  const GrammarLimits& limits_;
  size_t at_ = 0;
  std::map<std::string, size_t> names_;
  std::vector<Node> nodes_;
  std::vector<size_t> bodies_;
  std::vector<Cost> costs_;
  std::vector<State> states_;
};

}  // namespace

Result<void> check_gbnf_cost(std::string_view grammar, const GrammarLimits& limits) {
  return Graph(grammar, limits).check();
}

}  // namespace pocketfleet
