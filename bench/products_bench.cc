// SPDX-License-Identifier: Apache-2.0
//
// Products with a weight, through the C interface, captured and replayed, beside ggml's CPU backend: weights of float32
// and 16 bits, of 8 bits and of 4 bits with a scale for 32 numbers. In turn in one process, as many threads each;
// medians of rounds, and of the rounds' ratios with their quartiles. Below 1 is faster than ggml.
//
//     build/release/bin/products_bench [--rows 1,128] [--sizes 1024,4096] [--only TEXT] [--rounds 9] [--threads 2]
//         [--x bfloat16]
//
// Rows of 0 are as many as the size: a square product. Products of float32 are held against the peak, too: in each
// round one core multiplies and adds vectors that stay in registers, and each thread could do as much.
//
// x of products with weights of 8 and 4 bits is of float16, or of bfloat16.
// Without ggml (REPRISE_BENCH_GGML when the build was configured) our times are shown alone.
#include <aclnnop/aclnn_dynamic_quant.h>
#include <aclnnop/aclnn_mm.h>
#include <aclnnop/aclnn_quant_matmul_v4.h>
#include <aclnnop/aclnn_weight_quant_batch_matmul_v2.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "device.h"
#include "harness.h"
#include "multiply_adds.h"
#ifdef REPRISE_BENCH_HAVE_GGML
#include <ggml-cpu.h>
#include <ggml.h>
#endif

namespace bench {
namespace {

constexpr int64_t kGroup = 32;

struct Options {
  std::vector<int64_t> rows = {1, 128};
  std::vector<int64_t> sizes = {1024, 2048, 3072, 4096};
  std::string only;
  int rounds = 9;
  int threads = 2;
  aclDataType x = ACL_FLOAT16;  // of products with weights of 8 and 4 bits
};

// ---- Ours ----

// Memory of the device and views of it.
class Memory {
 public:
  ~Memory() {
    for (const aclTensor* tensor : tensors_) aclDestroyTensor(tensor);
    for (void* block : blocks_) aclrtFree(block);
  }
  void* Take(int64_t bytes) {
    void* block = nullptr;
    CHECK_ACL(aclrtMalloc(&block, static_cast<size_t>(bytes), ACL_MEM_MALLOC_HUGE_FIRST));
    std::memset(block, 0, static_cast<size_t>(bytes));
    blocks_.push_back(block);
    return block;
  }
  aclTensor* View(void* data, aclDataType type, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    aclTensor* tensor = aclCreateTensor(sizes.data(), sizes.size(), type, strides.data(), 0, ACL_FORMAT_ND,
                                        sizes.data(), sizes.size(), data);
    tensors_.push_back(tensor);
    return tensor;
  }

 private:
  std::vector<void*> blocks_;
  std::vector<const aclTensor*> tensors_;
};

// Numbers that all types hold.
float Value(int64_t i) { return static_cast<float>((i * 7919 + i / 13) % 15 - 7) / 8; }

void Put(void* to, aclDataType type, int64_t i, float value) {
  if (type == ACL_FLOAT) {
    static_cast<float*>(to)[i] = value;
    return;
  }
  static_cast<uint16_t*>(to)[i] = [&] {
    if (type == ACL_FLOAT16) return static_cast<uint16_t>(aclFloatToFloat16(value));
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<uint16_t>(bits >> 16);
  }();
}
float Get(const void* from, aclDataType type, int64_t i) {
  if (type == ACL_FLOAT) return static_cast<const float*>(from)[i];
  const uint16_t word = static_cast<const uint16_t*>(from)[i];
  if (type == ACL_FLOAT16) return aclFloat16ToFloat(word);
  const uint32_t bits = static_cast<uint32_t>(word) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

enum class Kind { kFloat, kHalf, kBFloat16, kInt8Columns, kInt8Rows, kInt4Columns, kInt4Rows, kIntegers };

struct Case {
  Kind kind;
  const char* name;
  const char* theirs;  // ggml's type
};
constexpr Case kCases[] = {
    {Kind::kFloat, "float32", "f32"},
    {Kind::kHalf, "float16", "f16"},
    {Kind::kBFloat16, "bfloat16", "bf16"},
    {Kind::kInt8Columns, "16 bits x int8, group 32, by columns", "q8_0"},
    {Kind::kInt8Rows, "16 bits x int8, group 32, by rows", "q8_0"},
    {Kind::kInt4Columns, "16 bits x int4, group 32, by columns", "q4_0"},
    {Kind::kInt4Rows, "16 bits x int4, group 32, by rows", "q4_0"},
    {Kind::kIntegers, "16 bits to int8, x int8, by columns", "q8_0"},
};

bool IsFloating(Kind kind) { return kind == Kind::kFloat || kind == Kind::kHalf || kind == Kind::kBFloat16; }

// y[m, n] = x[m, k] * weight[k, n], replayed.
class Ours {
 public:
  Ours(Kind kind, aclDataType x_type, int64_t m, int64_t size, aclrtStream stream) : stream_(stream) {
    const int64_t k = size;
    const int64_t n = size;
    type_ = kind == Kind::kFloat      ? ACL_FLOAT
            : kind == Kind::kHalf     ? ACL_FLOAT16
            : kind == Kind::kBFloat16 ? ACL_BF16
                                      : x_type;
    const int64_t item = type_ == ACL_FLOAT ? 4 : 2;
    void* const x = memory_.Take(m * k * item);
    y_ = memory_.Take(m * n * item);
    for (int64_t i = 0; i < m * k; ++i) Put(x, type_, i, Value(i));
    aclTensor* const x_view = memory_.View(x, type_, {m, k}, {k, 1});
    aclTensor* const y_view = memory_.View(y_, type_, {m, n}, {n, 1});
    const auto weight_at = [&](int64_t row, int64_t column) {  // whole numbers from -7 to 7
      return static_cast<int>((row * 31 + column * 17 + row / 7) % 15) - 7;
    };
    void* const weight = memory_.Take(k * n * item);
    aclTensor* weight_view = nullptr;
    const bool is_integers = kind == Kind::kIntegers;
    if (IsFloating(kind)) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < k; ++i) Put(weight, type_, j * k + i, static_cast<float>(weight_at(i, j)));
      }
      weight_view = memory_.View(weight, type_, {k, n}, {1, k});
    } else {
      const bool by_columns = kind != Kind::kInt8Rows && kind != Kind::kInt4Rows;
      const bool is_packed = kind == Kind::kInt4Columns || kind == Kind::kInt4Rows;
      auto* const bytes = static_cast<uint8_t*>(weight);
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          const int64_t at = by_columns ? j * k + i : i * n + j;
          const auto number = static_cast<uint32_t>(weight_at(i, j));
          if (is_packed) {
            bytes[at / 2] = static_cast<uint8_t>(bytes[at / 2] | (number & 15U) << (at % 2 * 4));
          } else {
            bytes[at] = static_cast<uint8_t>(number);
          }
        }
      }
      const int64_t share = is_packed ? 8 : 1;
      weight_view = by_columns ? memory_.View(weight, is_packed ? ACL_INT32 : ACL_INT8, {k / share, n}, {1, k / share})
                               : memory_.View(weight, is_packed ? ACL_INT32 : ACL_INT8, {k, n / share}, {n / share, 1});
    }
    const int64_t groups = is_integers ? 1 : k / kGroup;
    void* const scale = memory_.Take(groups * n * 4);
    for (int64_t i = 0; i < groups * n; ++i) {
      if (is_integers) {
        static_cast<float*>(scale)[i] = 1;
      } else {
        Put(scale, type_, i, 1);
      }
    }
    aclTensor* const scale_view =
        is_integers ? memory_.View(scale, ACL_FLOAT, {n}, {1}) : memory_.View(scale, type_, {groups, n}, {n, 1});
    aclTensor* const x_numbers = memory_.View(memory_.Take(m * k), ACL_INT8, {m, k}, {k, 1});
    aclTensor* const x_scale = memory_.View(memory_.Take(m * 4), ACL_FLOAT, {m}, {1});
    graph_ = std::make_unique<Graph>(Capture(stream, [&] {
      uint64_t bytes = 0;
      aclOpExecutor* executor = nullptr;
      const auto workspace = [&] { return bytes == 0 ? nullptr : memory_.Take(static_cast<int64_t>(bytes)); };
      if (IsFloating(kind)) {
        CHECK_ACL(aclnnMmGetWorkspaceSize(x_view, weight_view, y_view, 0, &bytes, &executor));
        CHECK_ACL(aclnnMm(workspace(), bytes, executor, stream));
      } else if (is_integers) {
        CHECK_ACL(aclnnDynamicQuantGetWorkspaceSize(x_view, nullptr, x_numbers, x_scale, &bytes, &executor));
        CHECK_ACL(aclnnDynamicQuant(workspace(), bytes, executor, stream));
        CHECK_ACL(aclnnQuantMatmulV4GetWorkspaceSize(x_numbers, weight_view, scale_view, nullptr, x_scale, nullptr,
                                                     false, false, y_view, &bytes, &executor));
        CHECK_ACL(aclnnQuantMatmulV4(workspace(), bytes, executor, stream));
      } else {
        CHECK_ACL(aclnnWeightQuantBatchMatmulV2GetWorkspaceSize(x_view, weight_view, scale_view, nullptr, nullptr,
                                                                nullptr, nullptr, static_cast<int>(kGroup), y_view,
                                                                &bytes, &executor));
        CHECK_ACL(aclnnWeightQuantBatchMatmulV2(workspace(), bytes, executor, stream));
      }
    }));
    Run();
    for (const auto& [i, j] : {std::pair<int64_t, int64_t>(0, 0), {m - 1, n - 1}, {m / 2, n / 3}}) {
      double expected = 0;
      double most = 0;
      for (int64_t l = 0; l < k; ++l) {
        expected += Value(i * k + l) * weight_at(l, j);
        most += std::fabs(Value(i * k + l) * static_cast<float>(weight_at(l, j)));
      }
      Require(std::fabs(Get(y_, type_, i * n + j) - expected) <= 0.01 * most, "our product is wrong");
    }
  }
  void Run() const { graph_->Run(stream_); }

 private:
  aclrtStream stream_;
  Memory memory_;
  aclDataType type_ = ACL_FLOAT;
  void* y_ = nullptr;
  std::unique_ptr<Graph> graph_;
};

// ---- Ggml ----

#ifdef REPRISE_BENCH_HAVE_GGML
class Theirs {
 public:
  Theirs(const std::string& name, int64_t m, int64_t size, int threads) {
    const ggml_type type = name == "f32"    ? GGML_TYPE_F32
                           : name == "f16"  ? GGML_TYPE_F16
                           : name == "bf16" ? GGML_TYPE_BF16
                           : name == "q8_0" ? GGML_TYPE_Q8_0
                                            : GGML_TYPE_Q4_0;
    ggml_init_params parameters{};
    parameters.mem_size = static_cast<size_t>(size * size * 4 + m * size * 8) + (1 << 20);
    context_ = ggml_init(parameters);
    Require(context_ != nullptr, "ggml: no memory");
    ggml_tensor* const weight = ggml_new_tensor_2d(context_, type, size, size);
    ggml_tensor* const x = ggml_new_tensor_2d(context_, GGML_TYPE_F32, size, m);
    std::vector<float> values(static_cast<size_t>(size * size));
    for (size_t i = 0; i < values.size(); ++i) values[i] = Value(static_cast<int64_t>(i));
    ggml_quantize_chunk(type, values.data(), ggml_get_data(weight), 0, size, size, nullptr);
    for (int64_t i = 0; i < m * size; ++i) static_cast<float*>(ggml_get_data(x))[i] = Value(i);
    graph_ = ggml_new_graph(context_);
    ggml_build_forward_expand(graph_, ggml_mul_mat(context_, weight, x));
    ggml_threadpool_params pool = ggml_threadpool_params_default(threads);
    pool_ = ggml_threadpool_new(&pool);
    Require(pool_ != nullptr, "ggml: no threads");
    plan_ = ggml_graph_plan(graph_, threads, pool_);
    work_.resize(plan_.work_size + 1);
    plan_.work_data = work_.data();
  }
  ~Theirs() {
    ggml_threadpool_free(pool_);
    ggml_free(context_);
  }
  Theirs(const Theirs&) = delete;
  Theirs& operator=(const Theirs&) = delete;
  void Run() { Require(ggml_graph_compute(graph_, &plan_) == GGML_STATUS_SUCCESS, "ggml: ggml_graph_compute failed"); }
  // Its threads poll for a while; the next run wakes them.
  void Rest() { ggml_threadpool_pause(pool_); }

 private:
  ggml_context* context_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  ggml_threadpool* pool_ = nullptr;
  ggml_cplan plan_{};
  std::vector<uint8_t> work_;
};
#endif

// ---- Rows ----

double Quantile(Series values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

void Measure(const Case& each, int64_t m, int64_t size, const Options& options, aclrtStream stream) {
  const Ours ours(each.kind, options.x, m, size, stream);
  std::vector<Sampler> samplers = {Repeat(Times([&] { ours.Run(); }))};
  const bool has_peak = each.kind == Kind::kFloat;
  constexpr int64_t kPeakRounds = 20000;
  int64_t multiply_adds = 1;
  if (has_peak) samplers.push_back(Repeat(Times([&] { multiply_adds = MultiplyAddsInRegisters(kPeakRounds); })));
#ifdef REPRISE_BENCH_HAVE_GGML
  Theirs theirs(each.theirs, m, size, options.threads);
  const Sampler run = Repeat(Times([&] { theirs.Run(); }));
  samplers.push_back([&theirs, run] {
    const double value = run();
    theirs.Rest();
    return value;
  });
#endif
  const std::vector<Series> series = Interleave(samplers, options.rounds);
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(size) * static_cast<double>(size);
  const double own = Quantile(series[0], 0.5);
  std::printf("%4ld x %ld^2  %-38s %10.1f us %7.1f Gop/s", static_cast<long>(m), static_cast<long>(size), each.name,
              own / 1e3, flops / own);
  if (has_peak) {  // what all threads could have done in the time of ours, as a share
    const double could = 2.0 * static_cast<double>(multiply_adds) * options.threads / flops;
    const Series shares = Scaled(RatiosToFirst(series[1], series[0]), 1 / could);
    std::printf("   %3.0f %% (%.0f..%.0f, at most %.0f) of the peak", 100 * Quantile(shares, 0.5),
                100 * Quantile(shares, 0.25), 100 * Quantile(shares, 0.75), 100 * Quantile(shares, 1));
  }
#ifdef REPRISE_BENCH_HAVE_GGML
  const Series ratios = Inverse(RatiosToFirst(series.back(), series[0]));
  std::printf("   ggml %-4s %10.1f us   %5.2f (%.2f..%.2f)", each.theirs, Quantile(series.back(), 0.5) / 1e3,
              Quantile(ratios, 0.5), Quantile(ratios, 0.25), Quantile(ratios, 0.75));
#endif
  std::printf("\n");
  std::fflush(stdout);
}

std::vector<int64_t> Numbers(const char* text) {
  std::vector<int64_t> numbers;
  for (char* end = nullptr;; text = end + 1) {
    numbers.push_back(std::strtol(text, &end, 10));
    if (*end != ',') return numbers;
  }
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--rows") options.rows = Numbers(value);
    if (name == "--sizes") options.sizes = Numbers(value);
    if (name == "--only") options.only = value;
    if (name == "--x") options.x = std::string(value) == "bfloat16" ? ACL_BF16 : ACL_FLOAT16;
    if (name == "--rounds") options.rounds = static_cast<int>(Numbers(value)[0]);
    if (name == "--threads") options.threads = static_cast<int>(Numbers(value)[0]);
  }
  setenv("REPRISE_WORKERS", std::to_string(options.threads).c_str(), 0);  // NOLINT(concurrency-mt-unsafe)
#ifndef REPRISE_BENCH_HAVE_GGML
  std::printf("ggml is not compared: REPRISE_BENCH_GGML was not given when this was built\n");
#endif
  const Device device;
  for (const Case& each : kCases) {
    if (std::string(each.name).find(options.only) == std::string::npos) continue;
    for (const int64_t m : options.rows) {
      for (const int64_t size : options.sizes) Measure(each, m == 0 ? size : m, size, options, device.stream());
    }
  }
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::Main(argc, argv); }
