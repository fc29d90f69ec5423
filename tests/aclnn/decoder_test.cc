// SPDX-License-Identifier: Apache-2.0
//
// An inference backend in small, as such backends call the operators: weights by name in [out, in] order, read through
// a transposed view after aclnnTransMatmulWeight; a cache of keys and values that is written at a position; rotary
// embedding from tables; fused attention under a mask; weights of 8 and 4 bits with a scale for each 32 numbers; one
// pool of workspace that each call takes from its begin. The position is data on the device and everything follows from
// it, so one captured step makes all tokens. Against plain loops in double that know nothing of steps or caches.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_argmax.h"
#include "aclnnop/aclnn_cast.h"
#include "aclnnop/aclnn_embedding.h"
#include "aclnnop/aclnn_fused_infer_attention_score.h"
#include "aclnnop/aclnn_incre_flash_attention.h"
#include "aclnnop/aclnn_index_copy.h"
#include "aclnnop/aclnn_index_select.h"
#include "aclnnop/aclnn_mm.h"
#include "aclnnop/aclnn_mul.h"
#include "aclnnop/aclnn_rms_norm.h"
#include "aclnnop/aclnn_rotary_position_embedding.h"
#include "aclnnop/aclnn_silu.h"
#include "aclnnop/aclnn_swi_glu.h"
#include "aclnnop/aclnn_trans_matmul_weight.h"
#include "aclnnop/aclnn_weight_quant_batch_matmul_v2.h"
#include "harness.h"

namespace aclnn_test {
namespace {

// What weights are called once aclnnTransMatmulWeight has arranged them.
constexpr aclFormat kWeightFormat = ACL_FORMAT_FRACTAL_NZ;
// What weights of 4 bits are called: ACL_INT32 or ACL_INT4, of the same bytes.
constexpr aclDataType kNibbleType = ACL_INT4;

constexpr int64_t kWidth = 128;
constexpr int64_t kHeads = 4;
constexpr int64_t kKeyHeads = 2;
constexpr int64_t kDepth = kWidth / kHeads;
constexpr int64_t kCached = kKeyHeads * kDepth;
constexpr int64_t kInner = 192;
constexpr int64_t kLayers = 2;
constexpr int64_t kVocabulary = 160;
constexpr int64_t kContext = 64;
constexpr int64_t kSteps = 48;
constexpr int64_t kGroup = 32;  // numbers of a weight that share a scale
constexpr double kEpsilon = 1e-5;

enum class Kind { kFloat, kHalf, kByte, kNibble };

struct Precision {
  const char* name;
  Kind kind;
  aclDataType type;  // of everything but indices
  double bound;      // error of a logit, in units of the largest one
};

using Doubles = std::vector<double>;

double Rounded(double value, aclDataType type) {
  char bytes[16];
  Store(bytes, type, {static_cast<long double>(value), 0});
  return static_cast<double>(Load(bytes, type).re);
}

// ---- What the operators must compute ----

// A weight as it counts: [rows, columns], after rounding and quantization.
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  Doubles values;

  Doubles Times(const Doubles& x) const {
    Doubles y(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        y[static_cast<size_t>(r)] += values[static_cast<size_t>(r * columns + c)] * x[static_cast<size_t>(c)];
      }
    }
    return y;
  }
};

std::string In(int64_t layer, const char* name) { return "blk." + std::to_string(layer) + "." + name; }

// Pairs that turn together: halves of the row in layer 0, neighbours in layer 1.
bool TurnsHalves(int64_t layer) { return layer == 0; }

double Angle(int64_t position, int64_t pair) {
  return static_cast<double>(position) *
         std::pow(10000.0, -static_cast<double>(pair) / static_cast<double>(kDepth / 2));
}

class Reference {
 public:
  explicit Reference(const std::map<std::string, Matrix>& weights) : weights_(weights) {}

  /// Logits of every step. `seen`: how many tokens a step sees besides those before it; 1, as it should be, or 0.
  std::vector<Doubles> Run(const std::vector<int64_t>& tokens, int64_t seen) const {
    std::vector<Doubles> x;
    const Matrix& table = Get("token_embd");
    for (const int64_t token : tokens) {
      const auto row = table.values.begin() + token * kWidth;
      x.emplace_back(row, row + kWidth);
    }
    for (int64_t layer = 0; layer < kLayers; ++layer) Layer(layer, x, seen);
    for (Doubles& row : x) row = Get("output").Times(Norm(row, Get("output_norm")));
    return x;
  }

 private:
  const Matrix& Get(const std::string& name) const { return weights_.at(name); }

  static Doubles Norm(const Doubles& x, const Matrix& gamma) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEpsilon);
    Doubles y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * gamma.values[i];
    return y;
  }

  static void Turn(Doubles& row, int64_t position, bool halves) {
    for (size_t head = 0; head < row.size() / kDepth; ++head) {
      for (size_t pair = 0; pair < kDepth / 2; ++pair) {
        double& a = row[head * kDepth + (halves ? pair : 2 * pair)];
        double& b = row[head * kDepth + (halves ? pair + kDepth / 2 : 2 * pair + 1)];
        const double angle = Angle(position, static_cast<int64_t>(pair));
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned;
      }
    }
  }

  void Layer(int64_t layer, std::vector<Doubles>& x, int64_t seen) const {
    std::vector<Doubles> keys;
    std::vector<Doubles> values;
    std::vector<Doubles> queries;
    for (size_t t = 0; t < x.size(); ++t) {
      const Doubles normed = Norm(x[t], Get(In(layer, "attn_norm")));
      queries.push_back(Get(In(layer, "attn_q")).Times(normed));
      keys.push_back(Get(In(layer, "attn_k")).Times(normed));
      values.push_back(Get(In(layer, "attn_v")).Times(normed));
      Turn(queries[t], static_cast<int64_t>(t), TurnsHalves(layer));
      Turn(keys[t], static_cast<int64_t>(t), TurnsHalves(layer));
    }
    for (size_t t = 0; t < x.size(); ++t) {
      const size_t count = std::max<size_t>(1, t + static_cast<size_t>(seen));
      Doubles attended(kWidth);
      for (size_t head = 0; head < kHeads; ++head) {
        const size_t own = head / (kHeads / kKeyHeads) * kDepth;
        Doubles weights(count);
        double largest = -INFINITY;
        for (size_t k = 0; k < count; ++k) {
          for (size_t i = 0; i < kDepth; ++i) weights[k] += queries[t][head * kDepth + i] * keys[k][own + i];
          weights[k] /= std::sqrt(static_cast<double>(kDepth));
          largest = std::max(largest, weights[k]);
        }
        double sum = 0;
        for (double& weight : weights) sum += weight = std::exp(weight - largest);
        for (size_t k = 0; k < count; ++k) {
          for (size_t i = 0; i < kDepth; ++i) attended[head * kDepth + i] += weights[k] / sum * values[k][own + i];
        }
      }
      AddTo(x[t], Get(In(layer, "attn_output")).Times(attended));
      const Doubles normed = Norm(x[t], Get(In(layer, "ffn_norm")));
      const Doubles up = Get(In(layer, "ffn_up")).Times(normed);
      Doubles gate = Get(In(layer, "ffn_gate")).Times(normed);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      AddTo(x[t], Get(In(layer, "ffn_down")).Times(gate));
    }
  }

  static void AddTo(Doubles& x, const Doubles& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  const std::map<std::string, Matrix>& weights_;
};

// ---- The backend ----

struct DestroyTensor {
  void operator()(aclTensor* tensor) const { aclDestroyTensor(tensor); }
};
using TensorPtr = std::unique_ptr<aclTensor, DestroyTensor>;

// Both phases, with the begin of the pool as workspace: nothing else on this stream runs at the same time.
#define REPRISE_RUN(op, ...)                                                                            \
  do {                                                                                                  \
    uint64_t bytes = 0;                                                                                 \
    aclOpExecutor* executor = nullptr;                                                                  \
    ASSERT_EQ(op##GetWorkspaceSize(__VA_ARGS__, &bytes, &executor), 0) << RecentMessage();              \
    ASSERT_LE(bytes, pool_.bytes());                                                                    \
    ASSERT_EQ(op(bytes != 0 ? pool_.data() : nullptr, bytes, executor, stream_), 0) << RecentMessage(); \
  } while (false)

class Backend {
 public:
  Backend(const Precision& precision, aclrtStream stream, std::mt19937& random)
      : precision_(precision), stream_(stream), random_(random) {
    Make("token_embd", kVocabulary, kWidth, 1, false);
    MakeNorm("output_norm");
    Make("output", kVocabulary, kWidth, Spread(kWidth), false);  // stays in the wide type, as in most files
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      MakeNorm(In(layer, "attn_norm"));
      MakeNorm(In(layer, "ffn_norm"));
      Make(In(layer, "attn_q"), kWidth, kWidth, Spread(kWidth), true);
      Make(In(layer, "attn_k"), kCached, kWidth, Spread(kWidth), true);
      Make(In(layer, "attn_v"), kCached, kWidth, Spread(kWidth), true);
      Make(In(layer, "attn_output"), kWidth, kWidth, Spread(kWidth), true);
      Make(In(layer, "ffn_gate"), kInner, kWidth, Spread(kWidth), true);
      Make(In(layer, "ffn_up"), kInner, kWidth, Spread(kWidth), true);
      Make(In(layer, "ffn_down"), kWidth, kInner, Spread(kInner), true);
      // What is behind the position must not be seen.
      for (const char* name : {"key", "value"}) {
        Upload(Allocate(In(layer, name), kContext * kCached * Bytes()), Doubles(kContext * kCached, 500), Type());
      }
    }
    MakeTables();
    if (precision_.kind == Kind::kFloat || precision_.kind == Kind::kHalf) Arrange();
  }

  const std::map<std::string, Matrix>& weights() const { return weights_; }
  const std::vector<int64_t>& tokens() const { return tokens_; }

  /// The device's next position; logits and answers are as if no step had been made.
  void Rewind() {
    const int64_t zero = 0;
    Check(aclrtMemcpy(At("position"), 8, &zero, 8, ACL_MEMCPY_HOST_TO_DEVICE));
    Check(aclrtMemset(At("all_logits"), kSteps * kVocabulary * 4, 0xff, kSteps * kVocabulary * 4));
    Check(aclrtMemset(At("answers"), kSteps * 8, 0xff, kSteps * 8));
  }

  std::vector<float> Logits() const {
    std::vector<float> logits(kSteps * kVocabulary);
    Check(
        aclrtMemcpy(logits.data(), logits.size() * 4, At("all_logits"), logits.size() * 4, ACL_MEMCPY_DEVICE_TO_HOST));
    return logits;
  }
  std::vector<int64_t> Answers() const {
    std::vector<int64_t> answers(kSteps);
    Check(aclrtMemcpy(answers.data(), kSteps * 8, At("answers"), kSteps * 8, ACL_MEMCPY_DEVICE_TO_HOST));
    return answers;
  }

  /// Queues one token.
  void Step() {
    const TensorPtr position = View("position", {1}, ACL_INT64);
    const TensorPtr token = View("token", {1}, ACL_INT64);
    const TensorPtr x = View("x", {1, kWidth});
    Select(*View("tokens", {kSteps}, ACL_INT64), *position, *token);
    const TensorPtr table = View("token_embd", {kVocabulary, kWidth});
    REPRISE_RUN(aclnnEmbedding, table.get(), token.get(), x.get());
    for (const char* name : {"cos", "sin"}) {
      for (const char* how : {".halves", ".neighbours"}) {
        const TensorPtr row = View(std::string(name) + how + ".row", {1, kDepth});
        Select(*View(std::string(name) + how, {kContext, kDepth}), *position, *row);
      }
    }
    Select(*View("masks", {kContext, kContext}, ACL_BOOL), *position, *View("mask", {1, kContext}, ACL_BOOL));
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      Norm(*x, In(layer, "attn_norm"));
      Multiply("normed", kWidth, In(layer, "attn_q"), "q", kWidth);
      Multiply("normed", kWidth, In(layer, "attn_k"), "k", kCached);
      Multiply("normed", kWidth, In(layer, "attn_v"), "v", kCached);
      Turn(layer, "q", kHeads, "turned_q");
      Turn(layer, "k", kKeyHeads, "turned_k");
      CopyRow(In(layer, "key"), kContext, kCached, "turned_k", Type());
      CopyRow(In(layer, "value"), kContext, kCached, "v", Type());
      Attend(layer);
      Multiply("attended", kWidth, In(layer, "attn_output"), "joined", kWidth);
      AddTo(*x, *View("joined", {1, kWidth}));
      Norm(*x, In(layer, "ffn_norm"));
      Feed(layer);
      AddTo(*x, *View("joined", {1, kWidth}));
    }
    Norm(*x, "output_norm");
    Multiply("normed", kWidth, "output", "logits", kVocabulary);
    const TensorPtr logits = View("logits", {1, kVocabulary});
    const TensorPtr wide = View("wide_logits", {1, kVocabulary}, ACL_FLOAT);
    REPRISE_RUN(aclnnCast, logits.get(), ACL_FLOAT, wide.get());
    CopyRow("all_logits", kSteps, kVocabulary, "wide_logits", ACL_FLOAT);
    const TensorPtr answer = View("answer", {1}, ACL_INT64);
    REPRISE_RUN(aclnnArgMax, logits.get(), 1, false, answer.get());
    CopyRow("answers", kSteps, 1, "answer", ACL_INT64);
    const TestScalar one(ACL_INT64, {1, 0});
    REPRISE_RUN(aclnnInplaceAdds, position.get(), one.get(), one.get());
  }

 private:
  static double Spread(int64_t columns) { return std::sqrt(3.0 / static_cast<double>(columns)); }
  static void Check(int status) { ASSERT_EQ(status, 0) << RecentMessage(); }
  aclDataType Type() const { return precision_.type; }
  size_t Bytes() const { return TypeOf(Type()).bytes; }
  bool IsQuantized() const { return precision_.kind == Kind::kByte || precision_.kind == Kind::kNibble; }

  char* Allocate(const std::string& name, size_t bytes) {
    return memory_.emplace(name, std::make_unique<Memory>(bytes)).first->second->data();
  }
  char* At(const std::string& name) const { return memory_.at(name)->data(); }

  static void Upload(char* to, const Doubles& values, aclDataType type) {
    std::vector<char> bytes(values.size() * TypeOf(type).bytes);
    for (size_t i = 0; i < values.size(); ++i) {
      Store(bytes.data() + i * TypeOf(type).bytes, type, {static_cast<long double>(values[i]), 0});
    }
    Check(aclrtMemcpy(to, bytes.size(), bytes.data(), bytes.size(), ACL_MEMCPY_HOST_TO_DEVICE));
  }

  TensorPtr View(const std::string& name, const Shape& shape, aclDataType type) const {
    return TensorPtr(aclCreateTensor(shape.data(), shape.size(), type, nullptr, 0, ACL_FORMAT_ND, shape.data(),
                                     shape.size(), At(name)));
  }
  TensorPtr View(const std::string& name, const Shape& shape) const { return View(name, shape, Type()); }

  // [in, out] of what lies in memory as [out, in].
  TensorPtr Transposed(const std::string& name, int64_t in, int64_t out, aclDataType type, aclFormat format) const {
    const int64_t sizes[] = {in, out};
    const int64_t strides[] = {1, in};
    const int64_t storage[] = {in * out};
    return TensorPtr(aclCreateTensor(sizes, 2, type, strides, 0, format, storage, 1, At(name)));
  }

  // ---- Weights ----

  void MakeNorm(const std::string& name) {
    Doubles values(kWidth);
    for (double& value : values) value = Rounded(Draw(0.5, 1.5), Type());
    Upload(Allocate(name, kWidth * Bytes()), values, Type());
    weights_[name] = {1, kWidth, values};
  }

  double Draw(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }

  void Make(const std::string& name, int64_t rows, int64_t columns, double spread, bool may_quantize) {
    Doubles values(static_cast<size_t>(rows * columns));
    for (double& value : values) value = Draw(-spread, spread);
    if (may_quantize && IsQuantized()) {
      Quantize(name, columns, values);
    } else {
      for (double& value : values) value = Rounded(value, Type());
      Upload(Allocate(name, values.size() * Bytes()), values, Type());
    }
    weights_[name] = {rows, columns, std::move(values)};
  }

  // Blocks of a row; `values` become what they stand for.
  void Quantize(const std::string& name, int64_t columns, Doubles& values) {
    const bool is_byte = precision_.kind == Kind::kByte;
    const double most = is_byte ? 127 : 7;
    Doubles scales;
    std::vector<int8_t> numbers;
    for (size_t begin = 0; begin < values.size(); begin += kGroup) {
      double largest = 0;
      for (size_t i = 0; i < kGroup; ++i) largest = std::max(largest, std::fabs(values[begin + i]));
      scales.push_back(Rounded(largest / most, Type()));
      for (size_t i = 0; i < kGroup; ++i) {
        const double number = std::clamp(std::nearbyint(values[begin + i] / scales.back()), -most - 1, most);
        numbers.push_back(static_cast<int8_t>(number));
        values[begin + i] = number * scales.back();
      }
    }
    ASSERT_EQ(columns % kGroup, 0);
    Upload(Allocate(name + ".scales", scales.size() * Bytes()), scales, Type());
    std::vector<uint8_t> packed(numbers.begin(), numbers.end());
    if (!is_byte) {  // the first of two in the lower half
      for (size_t i = 0; i < numbers.size(); i += 2) {
        packed[i / 2] = static_cast<uint8_t>((numbers[i] & 15) | (numbers[i + 1] & 15) << 4);
      }
      packed.resize(numbers.size() / 2);
    }
    Check(aclrtMemcpy(Allocate(name, packed.size()), packed.size(), packed.data(), packed.size(),
                      ACL_MEMCPY_HOST_TO_DEVICE));
  }

  // Every weight that products read takes the layout that the device likes best.
  void Arrange() {
    for (const auto& [name, weight] : weights_) {
      if (weight.rows == 1 || name == "token_embd") continue;
      const Shape shape = {weight.rows, weight.columns};
      const TensorPtr view = View(name, shape);
      REPRISE_RUN(aclnnTransMatmulWeight, view.get());
      uint64_t elements = 0;
      aclIntArray* sizes = aclCreateIntArray(shape.data(), shape.size());
      ASSERT_EQ(aclnnCalculateMatmulWeightSizeV2(sizes, Type(), &elements), 0) << RecentMessage();
      ASSERT_EQ(aclDestroyIntArray(sizes), 0);
      ASSERT_LE(elements * Bytes(), memory_.at(name)->bytes()) << "the weight does not fit where it was";
    }
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0) << RecentMessage();
  }

  void MakeTables() {
    for (int64_t i = 0; i < kSteps; ++i) tokens_.push_back(static_cast<int64_t>(random_() % kVocabulary));
    Check(
        aclrtMemcpy(Allocate("tokens", kSteps * 8), kSteps * 8, tokens_.data(), kSteps * 8, ACL_MEMCPY_HOST_TO_DEVICE));
    for (const bool halves : {true, false}) {
      Doubles cosines;
      Doubles sines;
      for (int64_t p = 0; p < kContext; ++p) {
        for (int64_t i = 0; i < kDepth; ++i) {
          const double angle = Angle(p, halves ? i % (kDepth / 2) : i / 2);
          cosines.push_back(std::cos(angle));
          sines.push_back(std::sin(angle));
        }
      }
      const std::string how = halves ? ".halves" : ".neighbours";
      Upload(Allocate("cos" + how, cosines.size() * Bytes()), cosines, Type());
      Upload(Allocate("sin" + how, sines.size() * Bytes()), sines, Type());
      Allocate("cos" + how + ".row", kDepth * Bytes());
      Allocate("sin" + how + ".row", kDepth * Bytes());
    }
    std::vector<char> masks(kContext * kContext);
    for (int64_t p = 0; p < kContext; ++p) {
      for (int64_t k = p + 1; k < kContext; ++k) masks[static_cast<size_t>(p * kContext + k)] = 1;  // hidden
    }
    Check(aclrtMemcpy(Allocate("masks", masks.size()), masks.size(), masks.data(), masks.size(),
                      ACL_MEMCPY_HOST_TO_DEVICE));
    const std::pair<const char*, int64_t> made[] = {
        {"x", kWidth},      {"normed", kWidth},      {"q", kWidth},         {"k", kCached},
        {"v", kCached},     {"turned_q", kWidth},    {"turned_k", kCached}, {"attended", kWidth},
        {"joined", kWidth}, {"gate_up", 2 * kInner}, {"gated", kInner},     {"logits", kVocabulary}};
    for (const auto& [name, count] : made) Allocate(name, static_cast<size_t>(count) * Bytes());
    Allocate("root", 4);
    Allocate("mask", kContext);
    Allocate("wide_logits", kVocabulary * 4);
    Allocate("all_logits", kSteps * kVocabulary * 4);
    Allocate("answers", kSteps * 8);
    for (const char* name : {"position", "token", "answer"}) Allocate(name, 8);
  }

  // ---- Steps ----

  void Select(const aclTensor& table, const aclTensor& index, aclTensor& row) {
    REPRISE_RUN(aclnnIndexSelect, &table, 0, &index, &row);
  }

  void Norm(const aclTensor& x, const std::string& gamma) {
    const TensorPtr weight = View(gamma, {kWidth});
    const TensorPtr out = View("normed", {1, kWidth});
    const TensorPtr root = View("root", {1, 1}, ACL_FLOAT);
    REPRISE_RUN(aclnnRmsNorm, &x, weight.get(), kEpsilon, out.get(), root.get());
  }

  void Multiply(const char* from, int64_t in, const std::string& name, const std::string& to, int64_t out,
                int64_t offset = 0) {
    const TensorPtr x = View(from, {1, in});
    const int64_t sizes[] = {1, out};
    const TensorPtr y(aclCreateTensor(sizes, 2, Type(), nullptr, offset, ACL_FORMAT_ND, sizes, 2, At(to)));
    if (!memory_.contains(name + ".scales")) {
      const TensorPtr weight = Transposed(name, in, out, Type(), kWeightFormat);
      REPRISE_RUN(aclnnMm, x.get(), weight.get(), y.get(), 2);
      return;
    }
    const TensorPtr scales = Transposed(name + ".scales", in / kGroup, out, Type(), ACL_FORMAT_ND);
    TensorPtr weight;
    if (precision_.kind == Kind::kByte) {
      weight = Transposed(name, in, out, ACL_INT8, ACL_FORMAT_ND);
    } else if (kNibbleType == ACL_INT4) {
      weight = Transposed(name, in, out, ACL_INT4, ACL_FORMAT_ND);
    } else {  // eight numbers make a word
      weight = Transposed(name, in / 8, out, kNibbleType, ACL_FORMAT_ND);
    }
    REPRISE_RUN(aclnnWeightQuantBatchMatmulV2, x.get(), weight.get(), scales.get(), nullptr, nullptr, nullptr, nullptr,
                static_cast<int>(kGroup), y.get());
  }

  void Turn(int64_t layer, const char* from, int64_t heads, const char* to) {
    const std::string how = TurnsHalves(layer) ? ".halves.row" : ".neighbours.row";
    const TensorPtr x = View(from, {1, 1, heads, kDepth});
    const TensorPtr y = View(to, {1, 1, heads, kDepth});
    const TensorPtr cos = View("cos" + how, {1, 1, 1, kDepth});
    const TensorPtr sin = View("sin" + how, {1, 1, 1, kDepth});
    uint64_t bytes = 1;
    aclOpExecutor* executor = nullptr;
    ASSERT_EQ(aclnnRotaryPositionEmbeddingGetWorkspaceSize(x.get(), cos.get(), sin.get(), TurnsHalves(layer) ? 0 : 1,
                                                           y.get(), &bytes, &executor),
              0)
        << RecentMessage();
    EXPECT_EQ(bytes, 0u) << "rows of this length need no memory of the caller";
    ASSERT_EQ(aclnnRotaryPositionEmbedding(nullptr, 0, executor, stream_), 0) << RecentMessage();
  }

  // Row `position` of `table`, a row of the same type.
  void CopyRow(const std::string& table, int64_t rows, int64_t columns, const std::string& row, aclDataType type) {
    const TensorPtr to = View(table, {rows, columns}, type);
    const TensorPtr position = View("position", {1}, ACL_INT64);
    const TensorPtr from = View(row, {1, columns}, type);
    REPRISE_RUN(aclnnInplaceIndexCopy, to.get(), 0, position.get(), from.get());
  }

  void Attend(int64_t layer) {
    const TensorPtr query = View("turned_q", {1, 1, kWidth});
    const TensorPtr mask = View("mask", {1, 1, 1, kContext}, ACL_BOOL);
    const TensorPtr out = View("attended", {1, 1, kWidth});
    aclTensor* key = View(In(layer, "key"), {1, kContext, kCached}).release();
    aclTensor* value = View(In(layer, "value"), {1, kContext, kCached}).release();
    aclTensorList* keys = aclCreateTensorList(&key, 1);
    aclTensorList* values = aclCreateTensorList(&value, 1);
    const double scale = 1 / std::sqrt(static_cast<double>(kDepth));
    char layout[] = "BSH";
    if (layer == 0) {
      constexpr int64_t kNoLimit = 2147483647;
      REPRISE_RUN(aclnnFusedInferAttentionScore, query.get(), keys, values, nullptr, mask.get(), nullptr, nullptr,
                  nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, kHeads,
                  scale, kNoLimit, kNoLimit, layout, kKeyHeads, 1, 0, 0, 0, false, out.get(), nullptr);
    } else {
      REPRISE_RUN(aclnnIncreFlashAttention, query.get(), keys, values, nullptr, mask.get(), nullptr, kHeads, scale,
                  layout, kKeyHeads, out.get());
    }
    ASSERT_EQ(aclDestroyTensorList(keys), 0);
    ASSERT_EQ(aclDestroyTensorList(values), 0);
  }

  void AddTo(aclTensor& x, const aclTensor& y) {
    const TestScalar one(ACL_FLOAT, {1, 0});
    REPRISE_RUN(aclnnInplaceAdd, &x, &y, one.get());
  }

  // silu(gate) * up, in one operator or in two.
  void Feed(int64_t layer) {
    Multiply("normed", kWidth, In(layer, "ffn_gate"), "gate_up", kInner);
    Multiply("normed", kWidth, In(layer, "ffn_up"), "gate_up", kInner, kInner);
    const TensorPtr both = View("gate_up", {1, 2 * kInner});
    const TensorPtr gated = View("gated", {1, kInner});
    if (layer == 0) {
      REPRISE_RUN(aclnnSwiGlu, both.get(), -1, gated.get());
    } else {
      const TensorPtr gate = View("gate_up", {1, kInner});
      const int64_t sizes[] = {1, kInner};
      const TensorPtr up(aclCreateTensor(sizes, 2, Type(), nullptr, kInner, ACL_FORMAT_ND, sizes, 2, At("gate_up")));
      REPRISE_RUN(aclnnSilu, gate.get(), gated.get());
      REPRISE_RUN(aclnnInplaceMul, gated.get(), up.get());
    }
    Multiply("gated", kInner, In(layer, "ffn_down"), "joined", kWidth);
  }

  Precision precision_;
  aclrtStream stream_;
  std::mt19937& random_;
  std::map<std::string, std::unique_ptr<Memory>> memory_;
  std::map<std::string, Matrix> weights_;
  std::vector<int64_t> tokens_;
  Memory pool_{4 << 20};
};
#undef REPRISE_RUN

class DecoderTest : public AclnnTest {
 protected:
  // The largest difference, in units of the largest logit.
  static double Distance(const std::vector<float>& logits, const std::vector<Doubles>& expected) {
    double most = 0;
    double error = 0;
    for (size_t t = 0; t < expected.size(); ++t) {
      for (size_t i = 0; i < expected[t].size(); ++i) {
        const double difference = std::fabs(static_cast<double>(logits[t * kVocabulary + i]) - expected[t][i]);
        error = difference <= error ? error : difference;  // NaN, too
        most = std::max(most, std::fabs(expected[t][i]));
      }
    }
    return error / most;
  }

  void Run(const Precision& precision) {
    Backend backend(precision, stream, random);
    if (HasFailure()) return;
    const auto finish = [&] { ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage(); };

    backend.Rewind();
    for (int64_t i = 0; i < kSteps && !HasFailure(); ++i) backend.Step();
    finish();
    const std::vector<float> eager = backend.Logits();
    const Reference reference(backend.weights());
    const double error = Distance(eager, reference.Run(backend.tokens(), 1));
    RecordProperty("error_in_billionths", static_cast<int>(error * 1e9));
    EXPECT_LE(error, precision.bound);
    // The bound is worth something: a step that does not see itself is far outside.
    EXPECT_GT(Distance(eager, reference.Run(backend.tokens(), 0)), 20 * precision.bound);
    const std::vector<int64_t> answers = backend.Answers();
    for (int64_t t = 0; t < kSteps; ++t) {
      const auto begin = eager.begin() + t * kVocabulary;
      EXPECT_EQ(answers[static_cast<size_t>(t)], std::max_element(begin, begin + kVocabulary) - begin) << "step " << t;
    }

    // One step, again and again; then all of them in one graph, twice. The cache keeps what it has: nobody may see it.
    for (const int64_t steps : {int64_t{1}, kSteps}) {
      ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), 0) << RecentMessage();
      for (int64_t i = 0; i < steps && !HasFailure(); ++i) backend.Step();
      aclmdlRI model = nullptr;
      ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
      for (int round = 0; round < 2; ++round) {
        backend.Rewind();
        for (int64_t i = 0; i < kSteps / steps; ++i)
          ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0) << RecentMessage();
        finish();
        EXPECT_EQ(backend.Logits(), eager) << steps << " steps a graph, round " << round;
        EXPECT_EQ(backend.Answers(), answers) << steps << " steps a graph, round " << round;
      }
      ASSERT_EQ(aclmdlRIDestroy(model), 0) << RecentMessage();
    }
  }
};

TEST_F(DecoderTest, Float32) { Run({"f32", Kind::kFloat, ACL_FLOAT, 2e-6}); }
TEST_F(DecoderTest, Float16) { Run({"f16", Kind::kHalf, ACL_FLOAT16, 3e-3}); }
TEST_F(DecoderTest, EightBits) { Run({"q8", Kind::kByte, ACL_FLOAT16, 3e-3}); }
TEST_F(DecoderTest, FourBits) { Run({"q4", Kind::kNibble, ACL_FLOAT16, 3e-3}); }

}  // namespace
}  // namespace aclnn_test
