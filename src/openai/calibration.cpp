#include "openai/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

namespace pocketfleet {

namespace {

constexpr double kLeast = 1e-12;
constexpr size_t kFewest = 10;
constexpr size_t kFolds = 5;
constexpr size_t kBins = 15;
constexpr double kLeastTemperature = 0.05;
constexpr double kMostTemperature = 20;

double logit(double probability) {
  const double p = std::clamp(probability, kLeast, 1 - kLeast);
  return std::log(p) - std::log1p(-p);
}

double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

// log(1 + exp(x)).
double softplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

double sum_of(std::span<const double> probabilities, std::span<const size_t> places) {
  double sum = 0;
  for (const size_t place : places) sum += place < probabilities.size() ? probabilities[place] : 0;
  return sum;
}

// The probability that the verdict gave to what turned out to be true.
double given_to_truth(const CalibrationExample& example, std::span<const double> probabilities,
                      std::span<const size_t> positive) {
  if (example.gold) return *example.gold < probabilities.size() ? probabilities[*example.gold] : 0;
  const double score = sum_of(probabilities, positive);
  return example.is_positive ? score : 1 - score;
}

// The smallest value of a function with one minimum (golden section).
double minimum(double low, double high, const std::function<double(double)>& f) {
  const double ratio = (std::sqrt(5.0) - 1) / 2;
  double a = high - ratio * (high - low);
  double b = low + ratio * (high - low);
  double at_a = f(a);
  double at_b = f(b);
  for (int step = 0; step < 80 && high - low > 1e-7; ++step) {
    if (at_a < at_b) {
      high = b;
      b = a;
      at_b = at_a;
      a = high - ratio * (high - low);
      at_a = f(a);
    } else {
      low = a;
      a = b;
      at_a = at_b;
      b = low + ratio * (high - low);
      at_b = f(b);
    }
  }
  return (low + high) / 2;
}

Calibration fit_temperature(std::span<const CalibrationExample> examples, std::span<const size_t> positive) {
  const double log_temperature = minimum(std::log(kLeastTemperature), std::log(kMostTemperature), [&](double value) {
    return score_calibration({std::exp(value), std::nullopt}, examples, positive).negative_log_likelihood;
  });
  Calibration fitted;
  fitted.temperature = std::exp(log_temperature);
  return fitted;
}

// Newton's method with backtracking on Platt's smoothed targets (H.-T. Lin, C.-J. Lin, R. Weng, A Note on Platt's Probabilistic
// Outputs, 2007).
Result<Calibration> fit_platt(std::span<const CalibrationExample> examples, std::span<const size_t> positive) {
  std::vector<double> x;
  std::vector<double> target;
  size_t yes = 0;
  for (const CalibrationExample& example : examples) yes += example.is_positive ? 1 : 0;
  const size_t no = examples.size() - yes;
  if (yes == 0 || no == 0)
    return fail(ErrorCode::kInvalidArgument, "all examples are of one kind; both positive and negative ones are needed");
  const double high = (static_cast<double>(yes) + 1) / (static_cast<double>(yes) + 2);
  const double low = 1 / (static_cast<double>(no) + 2);
  for (const CalibrationExample& example : examples) {
    x.push_back(logit(sum_of(example.probabilities, positive)));
    target.push_back(example.is_positive ? high : low);
  }
  const auto loss = [&](double slope, double offset) {
    double sum = 0;
    for (size_t index = 0; index < x.size(); ++index) {
      const double z = slope * x[index] + offset;
      sum += softplus(z) - target[index] * z;
    }
    return sum;
  };
  double slope = 1;
  double offset = 0;
  double best = loss(slope, offset);
  for (int step = 0; step < 100; ++step) {
    double g_slope = 0;
    double g_offset = 0;
    double h_ss = 1e-10;
    double h_so = 0;
    double h_oo = 1e-10;
    for (size_t index = 0; index < x.size(); ++index) {
      const double p = sigmoid(slope * x[index] + offset);
      const double difference = p - target[index];
      const double weight = p * (1 - p);
      g_slope += difference * x[index];
      g_offset += difference;
      h_ss += weight * x[index] * x[index];
      h_so += weight * x[index];
      h_oo += weight;
    }
    if (std::abs(g_slope) < 1e-7 && std::abs(g_offset) < 1e-7) break;
    const double determinant = h_ss * h_oo - h_so * h_so;
    if (!(std::abs(determinant) > 1e-18)) break;
    const double d_slope = -(h_oo * g_slope - h_so * g_offset) / determinant;
    const double d_offset = -(h_ss * g_offset - h_so * g_slope) / determinant;
    const double descent = g_slope * d_slope + g_offset * d_offset;
    double size = 1;
    while (size > 1e-10 && !(loss(slope + size * d_slope, offset + size * d_offset) < best + 1e-4 * size * descent)) size /= 2;
    if (size <= 1e-10) break;
    slope += size * d_slope;
    offset += size * d_offset;
    best = loss(slope, offset);
  }
  Calibration fitted;
  fitted.platt = PlattLine{slope, offset};
  return fitted;
}

}  // namespace

double apply(const PlattLine& line, double probability) {
  return sigmoid(line.slope * logit(probability) + line.offset);
}

std::vector<double> calibrated(const Calibration& calibration, std::span<const double> probabilities,
                               std::span<const size_t> positive) {
  std::vector<double> out(probabilities.begin(), probabilities.end());
  if (calibration.temperature != 1 && !out.empty()) {
    double most = 0;
    for (const double p : out) most = std::max(most, p);
    double sum = 0;
    for (double& p : out) {
      p = p > 0 ? std::exp((std::log(p) - std::log(most)) / calibration.temperature) : 0;
      sum += p;
    }
    for (double& p : out) p /= sum;
  }
  if (calibration.platt && !positive.empty()) {
    const double before = sum_of(out, positive);
    const double after = apply(*calibration.platt, before);
    std::vector<bool> is_positive(out.size(), false);
    for (const size_t place : positive) {
      if (place < out.size()) is_positive[place] = true;
    }
    const size_t positives = static_cast<size_t>(std::count(is_positive.begin(), is_positive.end(), true));
    for (size_t place = 0; place < out.size(); ++place) {
      const double part = is_positive[place] ? before : 1 - before;
      const double whole = is_positive[place] ? after : 1 - after;
      const size_t count = is_positive[place] ? positives : out.size() - positives;
      // A side that had nothing gets its share spread evenly.
      out[place] = part > kLeast ? out[place] / part * whole : whole / static_cast<double>(count);
    }
  }
  return out;
}

CalibrationScore score_calibration(const Calibration& calibration, std::span<const CalibrationExample> examples,
                                   std::span<const size_t> positive) {
  CalibrationScore score;
  if (examples.empty()) return score;
  struct Bin {
    double confidence = 0;
    double right = 0;
    size_t count = 0;
  };
  std::array<Bin, kBins> bins{};
  for (const CalibrationExample& example : examples) {
    const std::vector<double> p = calibrated(calibration, example.probabilities, positive);
    score.negative_log_likelihood -= std::log(std::max(given_to_truth(example, p, positive), kLeast));
    double confidence = 0;
    double right = 0;
    if (example.gold) {
      const auto best = static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
      confidence = p[best];
      right = best == *example.gold ? 1 : 0;
      for (size_t place = 0; place < p.size(); ++place) {
        const double difference = p[place] - (place == *example.gold ? 1 : 0);
        score.brier += difference * difference;
      }
    } else {
      confidence = sum_of(p, positive);
      right = example.is_positive ? 1 : 0;
      score.brier += (confidence - right) * (confidence - right);
    }
    Bin& bin = bins[std::min(kBins - 1, static_cast<size_t>(std::max(0.0, confidence) * kBins))];
    bin.confidence += confidence;
    bin.right += right;
    ++bin.count;
  }
  const auto count = static_cast<double>(examples.size());
  for (const Bin& bin : bins) score.expected_calibration_error += std::abs(bin.confidence - bin.right) / count;
  score.negative_log_likelihood /= count;
  score.brier /= count;
  return score;
}

Result<Calibration> fit_calibration(CalibrationMethod method, std::span<const CalibrationExample> examples,
                                    std::span<const size_t> positive) {
  if (examples.size() < kFewest) {
    return fail(ErrorCode::kInvalidArgument, "calibration needs at least " + std::to_string(kFewest) +
                                                 " labelled examples, not " + std::to_string(examples.size()));
  }
  if (method == CalibrationMethod::kTemperature) return fit_temperature(examples, positive);
  if (positive.empty()) return fail(ErrorCode::kInvalidArgument, "Platt's line needs a profile that names \"positive\" labels");
  return fit_platt(examples, positive);
}

Result<CalibrationScore> cross_validated_score(CalibrationMethod method, std::span<const CalibrationExample> examples,
                                               std::span<const size_t> positive) {
  // Every fifth one is left out, in the order of positive and negative ones apart, so that each part holds both.
  std::vector<size_t> order(examples.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin(), order.end(), [&](size_t index) { return examples[index].is_positive; });
  std::vector<CalibrationExample> shown;
  for (size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<CalibrationExample> fitted;
    std::vector<CalibrationExample> left_out;
    for (size_t place = 0; place < order.size(); ++place)
      (place % kFolds == fold ? left_out : fitted).push_back(examples[order[place]]);
    PF_TRY(const Calibration calibration, fit_calibration(method, fitted, positive));
    // Scored together at the end, since bins of few examples say little.
    for (CalibrationExample& example : left_out) {
      example.probabilities = calibrated(calibration, example.probabilities, positive);
      shown.push_back(std::move(example));
    }
  }
  return score_calibration({}, shown, positive);
}

}  // namespace pocketfleet
