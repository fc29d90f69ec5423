// SPDX-License-Identifier: Apache-2.0
//
// A transformer decoder block that makes one token after the other: normalization, query, key and value, rotary
// position embedding, attention over a cache of keys and values, a gated network of two layers. Operator by operator,
// and as one graph that is captured once: where the token goes in the cache is data on the device, how many keys the
// attention reads is changed by a task update before each replay.
//
//   g++ -std=c++17 -O2 decoder_block.cc -I$PREFIX/include -L$PREFIX/lib64 -lascendcl -lnnopbase -lopapi -lreprise
//   ./a.out [folder [width heads key_heads inner context tokens]]
//
// Leaves folder/decoder_block.bin: sizes, times, weights, inputs, outputs. decoder_block.py computes the same in
// PyTorch from it and compares.
#include <acl/acl.h>
#include <aclnnop/aclnn_add.h>
#include <aclnnop/aclnn_add_rms_norm.h>
#include <aclnnop/aclnn_apply_rotary_pos_emb.h>
#include <aclnnop/aclnn_fused_infer_attention_score.h>
#include <aclnnop/aclnn_index_copy.h>
#include <aclnnop/aclnn_matmul.h>
#include <aclnnop/aclnn_rms_norm.h>
#include <aclnnop/aclnn_swi_glu.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr double kEpsilon = 1e-6;
constexpr int64_t kNoLimit = 2147483647;

// Every call of the interface returns a number; the words come from aclGetRecentErrMsg.
void Check(int code, const char* call) {
  if (code == 0) return;
  const char* words = aclGetRecentErrMsg();
  std::fprintf(stderr, "%s returned %d\n%s\n", call, code, words != nullptr ? words : "");
  std::exit(1);
}
#define CHECK_ACL(call) Check(call, #call)

struct Sizes {
  int64_t width = 512;
  int64_t heads = 8;
  int64_t key_heads = 2;
  int64_t inner = 1408;
  int64_t context = 512;
  int64_t tokens = 256;
  int64_t depth() const { return width / heads; }
  int64_t cached() const { return key_heads * depth(); }
};

// Device memory, and views of it.
struct Buffer {
  float* data = nullptr;
  int64_t count = 0;

  explicit Buffer(int64_t elements) : count(elements) {
    void* memory = nullptr;
    CHECK_ACL(aclrtMalloc(&memory, bytes(), ACL_MEM_MALLOC_HUGE_FIRST));
    data = static_cast<float*>(memory);
  }
  size_t bytes() const { return static_cast<size_t>(count) * sizeof(float); }
};

aclTensor* View(void* data, const std::vector<int64_t>& shape, aclDataType type = ACL_FLOAT) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, ACL_FORMAT_ND, shape.data(), shape.size(),
                         data);
}

// What an operator works in. All of them run on one stream, so they may share it.
class Workspace {
 public:
  void* Of(uint64_t bytes) {
    if (bytes > have_) {
      CHECK_ACL(aclrtMalloc(&memory_, bytes, ACL_MEM_MALLOC_HUGE_FIRST));  // the old one may be in use
      have_ = bytes;
    }
    return memory_;
  }

 private:
  void* memory_ = nullptr;
  uint64_t have_ = 0;
};

class Decoder {
 public:
  Decoder(const Sizes& sizes, aclrtStream stream)
      : s_(sizes),
        stream_(stream),
        norm1(s_.width),
        norm2(s_.width),
        project(s_.width * (s_.width + 2 * s_.cached())),
        join(s_.width * s_.width),
        open(s_.width * 2 * s_.inner),
        close(s_.inner * s_.width),
        keys(s_.context * s_.cached()),
        values(s_.context * s_.cached()),
        x_(s_.width),
        cos_(s_.depth()),
        sin_(s_.depth()),
        position_(2),
        normed_(s_.width),
        root_(1),
        projected_(s_.width + 2 * s_.cached()),
        attended_(s_.width),
        joined_(s_.width),
        sum_(s_.width),
        opened_(2 * s_.inner),
        gated_(s_.inner),
        closed_(s_.width),
        y_(s_.width) {
    host_bytes_ = (2 * x_.bytes()) + 2 * cos_.bytes() + sizeof(int64_t);
    void* host = nullptr;
    CHECK_ACL(aclrtMallocHost(&host, host_bytes_));
    host_position_ = static_cast<int64_t*>(host);
    input = reinterpret_cast<float*>(host_position_ + 1);
    output = input + s_.width;
    host_cos_ = output + s_.width;
    host_sin_ = host_cos_ + s_.depth();
    MakeViews();
  }

  // The token's place, and the angles that belong to it. The graph copies them in.
  void SetPosition(int64_t position) {
    *host_position_ = position;
    const int64_t half = s_.depth() / 2;
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
      host_cos_[i] = host_cos_[i + half] = static_cast<float>(std::cos(angle));
      host_sin_[i] = host_sin_[i + half] = static_cast<float>(std::sin(angle));
    }
  }

  // Everything before the attention.
  void Begin() {
    const auto copy = [&](void* to, const void* from, size_t bytes) {
      CHECK_ACL(aclrtMemcpyAsync(to, bytes, from, bytes, ACL_MEMCPY_HOST_TO_DEVICE, stream_));
    };
    copy(x_.data, input, x_.bytes());
    copy(cos_.data, host_cos_, cos_.bytes());
    copy(sin_.data, host_sin_, sin_.bytes());
    copy(position_.data, host_position_, sizeof(int64_t));
    Run("aclnnRmsNorm", aclnnRmsNorm, [&](uint64_t* w, aclOpExecutor** e) {
      return aclnnRmsNormGetWorkspaceSize(x, gamma1, kEpsilon, normed, root, w, e);
    });
    Multiply(normed, project_weight, projected);
    Run("aclnnApplyRotaryPosEmb", aclnnApplyRotaryPosEmb, [&](uint64_t* w, aclOpExecutor** e) {
      return aclnnApplyRotaryPosEmbGetWorkspaceSize(query_heads, key_heads, cosine, sine, 1, w, e);
    });
    for (const auto& [cache, made] : {std::pair{key_rows, new_key}, std::pair{value_rows, new_value}}) {
      Run("aclnnInplaceIndexCopy", aclnnInplaceIndexCopy, [&](uint64_t* w, aclOpExecutor** e) {
        return aclnnInplaceIndexCopyGetWorkspaceSize(cache, 0, position, made, w, e);
      });
    }
  }

  // Attention of the token over the first `length` tokens of the cache.
  void Attend(int64_t length) {
    aclIntArray* lengths = aclCreateIntArray(&length, 1);
    char layout[] = "BSH";
    Run("aclnnFusedInferAttentionScore", aclnnFusedInferAttentionScore, [&](uint64_t* w, aclOpExecutor** e) {
      return aclnnFusedInferAttentionScoreGetWorkspaceSize(
          query, key_list, value_list, nullptr, nullptr, nullptr, lengths, nullptr, nullptr, nullptr, nullptr, nullptr,
          nullptr, nullptr, nullptr, nullptr, nullptr, s_.heads, 1.0 / std::sqrt(static_cast<double>(s_.depth())),
          kNoLimit, kNoLimit, layout, s_.key_heads, 0, 0, 0, 0, false, attended, nullptr, w, e);
    });
    CHECK_ACL(aclDestroyIntArray(lengths));
  }

  // Everything behind the attention.
  void End() {
    Multiply(attended_row, join_weight, joined);
    Run("aclnnAddRmsNorm", aclnnAddRmsNorm, [&](uint64_t* w, aclOpExecutor** e) {
      return aclnnAddRmsNormGetWorkspaceSize(x, joined, gamma2, kEpsilon, normed, root, sum, w, e);
    });
    Multiply(normed, open_weight, opened);
    Run("aclnnSwiGlu", aclnnSwiGlu,
        [&](uint64_t* w, aclOpExecutor** e) { return aclnnSwiGluGetWorkspaceSize(opened, -1, gated, w, e); });
    Multiply(gated, close_weight, closed);
    Run("aclnnAdd", aclnnAdd,
        [&](uint64_t* w, aclOpExecutor** e) { return aclnnAddGetWorkspaceSize(sum, closed, one, y, w, e); });
    CHECK_ACL(aclrtMemcpyAsync(output, y_.bytes(), y_.data, y_.bytes(), ACL_MEMCPY_DEVICE_TO_HOST, stream_));
  }

  void Step(int64_t length) {
    Begin();
    Attend(length);
    End();
  }

 private:
  Sizes s_;
  aclrtStream stream_;

 public:
  Buffer norm1, norm2, project, join, open, close;  // weights
  Buffer keys, values;                              // the cache
  float* input = nullptr;                           // pinned host memory
  float* output = nullptr;

 private:
  template <class Launch, class Plan>
  void Run(const char* name, Launch launch, Plan plan) {
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    Check(plan(&bytes, &executor), name);
    Check(launch(workspace_.Of(bytes), bytes, executor, stream_), name);
  }

  void Multiply(aclTensor* left, aclTensor* right, aclTensor* out) {
    Run("aclnnMatmul", aclnnMatmul,
        [&](uint64_t* w, aclOpExecutor** e) { return aclnnMatmulGetWorkspaceSize(left, right, out, 0, w, e); });
  }

  void MakeViews() {
    const int64_t width = s_.width;
    const int64_t cached = s_.cached();
    const int64_t depth = s_.depth();
    float* made_key = projected_.data + width;
    float* made_value = made_key + cached;
    x = View(x_.data, {1, width});
    gamma1 = View(norm1.data, {width});
    gamma2 = View(norm2.data, {width});
    normed = View(normed_.data, {1, width});
    root = View(root_.data, {1, 1});
    project_weight = View(project.data, {width, width + 2 * cached});
    projected = View(projected_.data, {1, width + 2 * cached});
    query_heads = View(projected_.data, {1, 1, s_.heads, depth});
    key_heads = View(made_key, {1, 1, s_.key_heads, depth});
    cosine = View(cos_.data, {1, 1, 1, depth});
    sine = View(sin_.data, {1, 1, 1, depth});
    position = View(position_.data, {1}, ACL_INT64);
    new_key = View(made_key, {1, cached});
    new_value = View(made_value, {1, cached});
    key_rows = View(keys.data, {s_.context, cached});
    value_rows = View(values.data, {s_.context, cached});
    query = View(projected_.data, {1, 1, width});
    aclTensor* key_cache = View(keys.data, {1, s_.context, cached});
    aclTensor* value_cache = View(values.data, {1, s_.context, cached});
    key_list = aclCreateTensorList(&key_cache, 1);
    value_list = aclCreateTensorList(&value_cache, 1);
    attended = View(attended_.data, {1, 1, width});
    attended_row = View(attended_.data, {1, width});
    join_weight = View(join.data, {width, width});
    joined = View(joined_.data, {1, width});
    sum = View(sum_.data, {1, width});
    open_weight = View(open.data, {width, 2 * s_.inner});
    opened = View(opened_.data, {1, 2 * s_.inner});
    gated = View(gated_.data, {1, s_.inner});
    close_weight = View(close.data, {s_.inner, width});
    closed = View(closed_.data, {1, width});
    y = View(y_.data, {1, width});
    one = aclCreateScalar(&one_value_, ACL_FLOAT);
  }

  Buffer x_, cos_, sin_, position_, normed_, root_, projected_, attended_, joined_, sum_, opened_, gated_, closed_, y_;
  aclTensor *x, *gamma1, *gamma2, *normed, *root, *project_weight, *projected, *query_heads, *key_heads, *cosine, *sine,
      *position, *new_key, *new_value, *key_rows, *value_rows, *query, *attended, *attended_row, *join_weight, *joined,
      *sum, *open_weight, *opened, *gated, *close_weight, *closed, *y;
  aclTensorList *key_list, *value_list;
  aclScalar* one;
  float one_value_ = 1;
  Workspace workspace_;
  int64_t* host_position_ = nullptr;
  float *host_cos_ = nullptr, *host_sin_ = nullptr;
  size_t host_bytes_ = 0;
};

// Numbers between -bound and bound, the same in every run.
std::vector<float> Random(int64_t count, float bound) {
  static uint32_t state = 1;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = (static_cast<float>(state >> 8) / 8388608.0f - 1.0f) * bound;
  }
  return values;
}

double Now() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  Sizes sizes;
  int64_t* const fields[] = {&sizes.width, &sizes.heads, &sizes.key_heads, &sizes.inner, &sizes.context, &sizes.tokens};
  for (int i = 2; i < argc && i < 8; ++i) *fields[i - 2] = std::atoll(argv[i]);
  if (sizes.tokens > sizes.context || sizes.tokens < 2 || sizes.width % sizes.heads != 0) {
    std::fprintf(stderr, "the tokens must fit the context, the heads divide the width\n");
    return 1;
  }
  CHECK_ACL(aclInit(nullptr));
  CHECK_ACL(aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  CHECK_ACL(aclrtCreateStream(&stream));

  Decoder decoder(sizes, stream);
  std::FILE* file = std::fopen((folder + "/decoder_block.bin").c_str(), "wb");
  if (file == nullptr) {
    std::perror(folder.c_str());
    return 1;
  }
  std::vector<std::vector<float>> weights;
  for (const Buffer* weight :
       {&decoder.norm1, &decoder.project, &decoder.join, &decoder.norm2, &decoder.open, &decoder.close}) {
    const bool is_norm = weight->count == sizes.width;
    const auto rows = static_cast<float>(weight == &decoder.close ? sizes.inner : sizes.width);
    weights.push_back(Random(weight->count, is_norm ? 1.0f : std::sqrt(3.0f / rows)));
    CHECK_ACL(
        aclrtMemcpy(weight->data, weight->bytes(), weights.back().data(), weight->bytes(), ACL_MEMCPY_HOST_TO_DEVICE));
  }
  const std::vector<float> inputs = Random(sizes.tokens * sizes.width, 1.0f);
  const auto set_token = [&](int64_t token) {
    std::memcpy(decoder.input, inputs.data() + token * sizes.width, static_cast<size_t>(sizes.width) * sizeof(float));
    decoder.SetPosition(token);
  };
  // One row of outputs for each token; the first tokens warm the machine up and are not timed.
  std::vector<float> outputs(inputs.size());
  const auto generate = [&](const auto& step, std::vector<double>& times) {
    for (int64_t token = 0; token < sizes.tokens; ++token) {
      const double start = Now();
      set_token(token);
      step(token + 1);
      CHECK_ACL(aclrtSynchronizeStream(stream));
      if (token >= sizes.tokens / 4) times.push_back(Now() - start);
      std::memcpy(outputs.data() + token * sizes.width, decoder.output,
                  static_cast<size_t>(sizes.width) * sizeof(float));
    }
  };

  // Operator by operator.
  std::vector<double> eager_times;
  generate([&](int64_t length) { decoder.Step(length); }, eager_times);
  const std::vector<float> eager = outputs;

  // Captured once, for all tokens; the attention is a group of its own.
  aclmdlRI graph = nullptr;
  aclrtTaskGrp attention = nullptr;
  CHECK_ACL(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  decoder.Begin();
  CHECK_ACL(aclmdlRICaptureTaskGrpBegin(stream));
  decoder.Attend(1);
  CHECK_ACL(aclmdlRICaptureTaskGrpEnd(stream, &attention));
  decoder.End();
  CHECK_ACL(aclmdlRICaptureEnd(stream, &graph));
  std::fill(outputs.begin(), outputs.end(), 0.0f);
  for (const Buffer* cache : {&decoder.keys, &decoder.values}) {
    CHECK_ACL(aclrtMemset(cache->data, cache->bytes(), 0, cache->bytes()));
  }
  std::vector<double> replay_times;
  generate(
      [&](int64_t length) {
        CHECK_ACL(aclmdlRICaptureTaskUpdateBegin(stream, attention));
        decoder.Attend(length);
        CHECK_ACL(aclmdlRICaptureTaskUpdateEnd(stream));
        CHECK_ACL(aclmdlRIExecuteAsync(graph, stream));
      },
      replay_times);
  const bool is_same = std::memcmp(outputs.data(), eager.data(), outputs.size() * sizeof(float)) == 0;

  std::printf("width %ld, %ld heads over %ld, inner %ld, %ld tokens\n", static_cast<long>(sizes.width),
              static_cast<long>(sizes.heads), static_cast<long>(sizes.key_heads), static_cast<long>(sizes.inner),
              static_cast<long>(sizes.tokens));
  std::printf("eager against replay: %s\n", is_same ? "equal, bit for bit" : "DIFFERENT");
  const double times[] = {Median(eager_times), Median(replay_times)};
  std::printf("microseconds for a token, median: eager %.1f, captured %.1f\n", times[0], times[1]);

  bool is_written = true;
  const auto write = [&](const void* data, size_t bytes) {
    is_written = std::fwrite(data, 1, bytes, file) == bytes && is_written;
  };
  for (const int64_t* field : fields) write(field, sizeof(int64_t));
  write(times, sizeof times);
  for (const auto& weight : weights) write(weight.data(), weight.size() * sizeof(float));
  write(inputs.data(), inputs.size() * sizeof(float));
  write(outputs.data(), outputs.size() * sizeof(float));
  is_written = std::fclose(file) == 0 && is_written;
  if (!is_written) std::perror("decoder_block.bin");

  CHECK_ACL(aclmdlRIDestroy(graph));
  CHECK_ACL(aclrtDestroyStream(stream));
  CHECK_ACL(aclrtResetDevice(0));
  CHECK_ACL(aclFinalize());
  return is_same && is_written ? 0 : 1;
}
