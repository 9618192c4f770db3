#include "model/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>

namespace pocketfleet {

namespace {

constexpr size_t kLongest = 4096;
constexpr std::array<std::string_view, 3> kPreferred = {"Q4_K_M", "Q4_0", "Q8_0"};
constexpr size_t kNamesInMessage = 12;

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

bool sane_part(std::string_view part) {
  if (part.empty() || part.size() > 128 || part.front() == '.' || part.front() == '-') return false;
  return part.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == std::string_view::npos &&
         part.find("..") == std::string_view::npos;
}

tl::unexpected<Error> wrong(std::string_view text, std::string_view what) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("\"{}\" {}; a model is a path, https://..., or hf:owner/repository[@revision][:file or quantisation]",
                          text.substr(0, 200), what));
}

Result<ModelReference> parse_hub(std::string_view text, std::string_view rest) {
  ModelReference reference;
  reference.kind = ReferenceKind::kHub;
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    reference.selector = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (reference.selector.empty()) return wrong(text, "names no file behind the colon");
    if (reference.selector.front() == '/' || reference.selector.find("..") != std::string::npos)
      return wrong(text, "names a file that is not inside the repository");
  }
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    reference.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!sane_part(reference.revision)) return wrong(text, "names a revision that cannot be one");
  }
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return wrong(text, "has no owner/repository");
  reference.owner = rest.substr(0, slash);
  reference.repository = rest.substr(slash + 1);
  if (!sane_part(reference.owner) || !sane_part(reference.repository)) return wrong(text, "has no owner/repository");
  return reference;
}

bool is_loopback_url(std::string_view rest) {
  const std::string_view host = rest.substr(0, rest.find_first_of("/:"));
  return host == "127.0.0.1" || host == "localhost" || rest.starts_with("[::1]");
}

// "x-00001-of-00003.gguf" gives "x", 1 and 3.
struct SplitName {
  std::string_view stem;
  int part = 0;
  int parts = 0;
};

std::optional<SplitName> split_name(std::string_view path) {
  constexpr size_t kTail = std::string_view("-00001-of-00003.gguf").size();
  if (path.size() <= kTail || !path.ends_with(".gguf")) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kTail);
  const auto number = [&](size_t at) {
    int value = 0;
    for (size_t place = at; place < at + 5; ++place) {
      if (tail[place] < '0' || tail[place] > '9') return -1;
      value = value * 10 + (tail[place] - '0');
    }
    return value;
  };
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
  const SplitName name{path.substr(0, path.size() - kTail), number(1), number(10)};
  if (name.part < 1 || name.parts < 1 || name.part > name.parts) return std::nullopt;
  return name;
}

std::string_view file_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

Result<ModelReference> parse_reference(std::string_view text) {
  if (text.empty()) return wrong(text, "is empty");
  if (text.size() > kLongest || text.find('\0') != std::string_view::npos) return wrong(text, "cannot be a reference");
  Result<ModelReference> reference = ModelReference{};
  if (text.starts_with("hf:")) {
    reference = parse_hub(text, text.substr(3));
  } else if (text.starts_with("https://") || text.starts_with("http://")) {
    const std::string_view rest = text.substr(text.find("//") + 2);
    if (text.starts_with("http://") && !is_loopback_url(rest))
      return wrong(text, "is not encrypted, so whoever sits between could send another model");
    if (rest.empty() || rest.front() == '/') return wrong(text, "names no host");
    reference->kind = ReferenceKind::kUrl;
    reference->url = text;
  } else if (const size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    return wrong(text, "is of a kind that is not known");
  } else {
    reference->path = text;
  }
  if (reference) reference->text = text;
  return reference;
}

std::string quantisation_of(std::string_view name) {
  const std::string text = upper(file_name(name));
  // The last word that looks like one: "Model-Q8-Edition-Q4_K_M.gguf".
  std::string found;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("-.", at), text.size());
    const std::string_view word = std::string_view(text).substr(at, end - at);
    const bool i_quant = word.starts_with("IQ");
    const std::string_view digits = i_quant ? word.substr(2) : word.starts_with("Q") ? word.substr(1) : std::string_view();
    if (word == "F16" || word == "BF16" || word == "F32" ||
        (!digits.empty() && digits[0] >= '1' && digits[0] <= '8' && (digits.size() == 1 || digits[1] == '_'))) {
      found = word;
    }
    at = end + 1;
  }
  return found;
}

Result<std::vector<HubFile>> choose_files(const std::vector<HubFile>& files, std::string_view selector) {
  // Models by the name that tells them apart; a split one has several files.
  std::map<std::string, std::vector<HubFile>> models;
  for (const HubFile& file : files) {
    if (!file.path.ends_with(".gguf") || file_name(file.path).starts_with("mmproj")) continue;
    const auto split = split_name(file.path);
    models[split ? std::string(split->stem) : file.path].push_back(file);
  }
  std::string names;
  size_t shown = 0;
  for (const auto& [name, parts] : models) {
    if (++shown > kNamesInMessage) break;
    names += (names.empty() ? "" : ", ") + std::string(file_name(name));
  }
  if (models.empty()) return fail(ErrorCode::kNotFound, "the repository holds no .gguf file");

  std::vector<const std::vector<HubFile>*> fitting;
  const auto take_if = [&](const auto& fits) {
    for (const auto& [name, parts] : models) {
      if (fits(name, parts)) fitting.push_back(&parts);
    }
  };
  if (selector.empty()) {
    if (models.size() == 1) fitting.push_back(&models.begin()->second);
    for (const std::string_view quantisation : kPreferred) {
      if (fitting.empty()) take_if([&](const std::string& name, const auto&) { return quantisation_of(name) == quantisation; });
    }
  } else {
    take_if([&](const std::string& name, const std::vector<HubFile>& parts) {
      return name == selector || file_name(name) == selector || std::any_of(parts.begin(), parts.end(), [&](const HubFile& file) {
               return file.path == selector || file_name(file.path) == selector;
             });
    });
    if (fitting.empty()) take_if([&](const std::string& name, const auto&) { return quantisation_of(name) == upper(selector); });
  }
  if (fitting.empty()) {
    return fail(ErrorCode::kNotFound,
                selector.empty() ? fmt::format("the repository holds several models; say which behind a colon: {}", names)
                                 : fmt::format("the repository holds no \"{}\"; there is: {}", selector.substr(0, 200), names));
  }
  if (fitting.size() > 1) {
    std::string several;
    for (const auto* parts : fitting) several += (several.empty() ? "" : ", ") + parts->front().path;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("several files fit \"{}\": {}; name one", selector.substr(0, 200), several));
  }
  std::vector<HubFile> chosen = *fitting.front();
  std::sort(chosen.begin(), chosen.end(), [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  if (const auto split = split_name(chosen.front().path)) {
    for (size_t index = 0; index < chosen.size(); ++index) {
      const auto part = split_name(chosen[index].path);
      if (chosen.size() == static_cast<size_t>(split->parts) && part->part == static_cast<int>(index) + 1) continue;
      return fail(ErrorCode::kNotFound, fmt::format("the repository holds {} of the {} parts of {}", chosen.size(), split->parts,
                                                    file_name(split->stem)));
    }
  }
  return chosen;
}

}  // namespace pocketfleet
