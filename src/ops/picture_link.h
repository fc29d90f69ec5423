// SPDX-License-Identifier: Apache-2.0
//
// The links of chains of convolutions (picture_chain.h): what runs in place of tasks, on pictures with channels behind.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ir/chain.h"
#include "kernels/channels_last_conv.h"
#include "ops/families/picture_reader.h"
#include "ops/families/plane_convolution.h"
#include "ops/launch.h"
#include "ops/picture.h"

namespace reprise::ops::pictures {

inline constexpr size_t kNone = SIZE_MAX;

struct LaunchRelease {
  void operator()(const Launch* launch) const { launch->Release(); }
};
using LaunchPtr = std::unique_ptr<Launch, LaunchRelease>;

// Mirrors, prepared inputs and scratch of all links of a chain, which run one after another.
struct ChainMemory {
  explicit ChainMemory(uint64_t bytes)
      : block(static_cast<char*>(::operator new (std::max<uint64_t>(1, bytes), std::align_val_t{kScratchAlignment}))) {}
  ~ChainMemory() { ::operator delete (block, std::align_val_t{kScratchAlignment}); }
  ChainMemory(const ChainMemory&) = delete;
  ChainMemory& operator=(const ChainMemory&) = delete;
  char* const block;
};

/// What a link is to compute.
struct LinkPlan {
  enum class Kind : uint8_t {
    kConvolution,
    kReader,    ///< a task that reads a mirror in place of the picture, and gives what it gives
    kFinish,    ///< a batch norm of a mirror and what follows it
    kJoin,      ///< pictures beside each other, channel behind channel
    kPool,      ///< of the planes of a mirror
    kPixelMap,  ///< each pixel is a copy of one of a mirror
    kOrder,     ///< channels of a mirror in another order, or some of them
    kProduct,   ///< of a picture and a number for each channel: a mirror of one and the other
  };
  Kind kind = Kind::kConvolution;
  PlaneConvolution conv;                    // of kConvolution
  size_t first = 0, count = 0;              // tasks
  size_t runs = 0;                          // tasks from the first on that it computes
  const Launch* begins = nullptr;           // the launches of the tasks
  size_t operand = 0;                       // of others than convolutions: the picture among its refs
  PicturePool pool;                         // of kPool
  const kernels::Separable* map = nullptr;  // of kPixelMap
  bool has_channels_last = false;           // dims [N, .., C] of that operand
  const Launch* norm = nullptr;             // a batch norm
  size_t norm_task = kNone;
  size_t sum = kNone;             // the task of a sum
  kernels::TensorRef addend_ref;  // of it
  kernels::ConvEpilogue epilogue;
  Picture result;
  // Tasks whose result has to be in memory although others of the link follow; 0: there are none.
  size_t split = 0;
  Picture split_result;
  // Places in the table of mirrors.
  size_t input = kNone, addend = kNone, out = kNone;
  // Of kConvolution, which may read some channels of its mirror only: the first one, and how many there are.
  int64_t input_channel = 0, input_channels = 0;
  struct Channels {
    size_t mirror = kNone;
    int64_t channel = 0, channels = 0;  // of it: the first that is read, and all that there are
  };
  std::vector<Channels> joined;  // of kJoin, for each picture
  std::vector<int32_t> order;    // of kOrder: the channel of the mirror that each channel is
  size_t split_out = kNone;      // of what is there behind the first tasks, where it is split
  bool reads_planes = false;     // the input is prepared from memory
  bool turns_input = false;      // and written to its mirror
  // As far as they have to be in memory: the result, and what is there behind the first tasks.
  std::vector<Bytes> stored, stored_split;
  bool is_read = false;  // its mirror

  // Whether the convolution itself goes on with what the task does.
  bool IsInHead(size_t task) const { return task != kNone && (split == 0 || task < first + split); }
};

/// What a convolution computes, on pictures with channels behind.
struct Views {
  kernels::ConvShape shape;
  kernels::TensorRef input, out, weight;
};

/// `columns`: what is unfolded, where it is.
Views ViewsOf(const LinkPlan& plan, float* input, float* out, float* columns);

/// What becomes of the pixels of a convolution when they are there: results that have to be in memory are written to
/// their planes, and what follows a split is computed.
struct Aftermath {
  // Planes [first, end) of a picture, and where its pixels lie.
  struct Store {
    int64_t picture, first, end;
    const float* pixels;
    float* planes;  // the first one
  };
  int64_t channels = 0, plane = 0;
  std::vector<Store> before, behind;     // what is there before the rest is computed, and behind that
  bool finishes = false;                 // there is a rest
  kernels::simd::FinishedPixels rest{};  // of all pixels; without the scaling
  kernels::ActivationPass activate;      // behind it
  bool scales = false;

  bool IsNothing() const { return before.empty() && behind.empty() && !finishes; }

  void Run(kernels::Range pixels, kernels::Range of, const kernels::simd::ChannelScaling& scaling) const;

 private:
  void Write(const Store& store, kernels::Range pixels, kernels::Range of) const;
};

/// The scales of channels that a batch norm of inference computes from its numbers.
class NormScaling {
 public:
  NormScaling(const Launch& norm, int64_t channels);
  /// As the numbers are now.
  void Update();
  kernels::simd::ChannelScaling Get() const;

 private:
  bool HaveChanged(const kernels::BatchNormArgs& args);

  static constexpr size_t kParameters = 4;
  const size_t channels_;
  std::unique_ptr<const Launch, LaunchRelease> norm_;
  std::vector<float> rows_;  // centre, scale, shift
  bool has_seen_ = false;
  std::vector<float> seen_;  // the numbers, as they were the last time
};

/// What follows pixels that are there, and the norm in it; null: there is none.
struct Finishing {
  Aftermath after;
  std::shared_ptr<NormScaling> norm;
  kernels::simd::ChannelScaling Scaling() const {
    return norm == nullptr ? kernels::simd::ChannelScaling() : norm->Get();
  }
};

/// A picture that is joined with others.
struct JoinedPicture {
  const float* data;
  int64_t channels;
  bool is_mirror;    ///< its channels lie behind,
  int64_t step = 0;  ///< elements from one pixel to the next
};

/// Runs launches, one after the other, in memory that all links of a chain share.
class PictureLink : public ir::Link {
 public:
  explicit PictureLink(const Launch& begins) : schema_(begins.op) {}

  virtual uint64_t scratch_bytes() const;
  /// Of float32, which nobody needs behind the link.
  virtual int64_t prepared_elements() const { return 0; }
  /// `scratch`: of all links.
  void Own(std::shared_ptr<ChainMemory> memory, void* scratch);

  /// What a launch does (families/picture_reader.h) that reads refs[1] elsewhere.
  void AddReader(const Launch& launch, const kernels::TensorRef& source);
  /// to = from times a number for each channel of each picture, which lie one after the other.
  void AddProduct(const Picture& picture, float* to, const float* from, const float* numbers);

  /// Both have channels behind.
  void AddPool(const PicturePool& pool, const kernels::TensorRef& to, const kernels::TensorRef& from);
  /// `channels`: of `from`
  void AddOrder(const Picture& picture, float* to, const float* from, int64_t channels, std::vector<int32_t> order);
  void AddPixelMap(const kernels::Separable& map, const Picture& picture, float* to, const float* from);

  void AddJoin(const Picture& picture, float* to, std::vector<JoinedPicture> parts);
  /// What follows the pixels of the picture.
  void AddFinishing(std::shared_ptr<const Finishing> finishing, const Picture& picture, float* pixels);

  void Run(device::RunContext& context) override;
  bool FindOperand(ir::KeptOperand&) const override { return false; }
  void WriteForm(device::RunContext&, void*) const override {}
  void SetForm(const void*) override {}

 protected:
  void SetNorm(std::shared_ptr<NormScaling> norm) { norm_ = std::move(norm); }
  void AddNormOf(const PictureLink& behind) {
    if (behind.norm_ != nullptr) more_norms_.push_back(behind.norm_);
  }
  static uint64_t ScratchOf(const Launch& launch);
  Launch& Add(Launch::Kernel kernel, std::initializer_list<kernels::TensorRef> refs);
  /// Another one runs in its place; null: none does. \return the one that is taken out
  LaunchPtr Replace(const Launch& launch, LaunchPtr by);
  /// A launch whose operand is [pixels, channels] of the picture, and which computes some pixels at a time; `cost`: of
  /// an element, in light operations.
  void AddOfPixels(Launch::Kernel kernel, const Picture& picture, float* pixels, std::shared_ptr<const void> state,
                   int64_t cost);
  LaunchPtr Make(Launch::Kernel kernel, std::initializer_list<kernels::TensorRef> refs) const;
  void* scratch() const { return scratch_; }

 private:
  const OpSchema& schema_;
  std::vector<LaunchPtr> launches_;  // in the order in which they run
  std::shared_ptr<NormScaling> norm_;
  std::vector<std::shared_ptr<NormScaling>> more_norms_;  // of links behind it that it runs
  std::shared_ptr<ChainMemory> memory_;
  void* scratch_ = nullptr;
};

/// A convolution and what follows it.
class ConvolutionLink final : public PictureLink {
 public:
  struct State;

  ConvolutionLink(const LinkPlan& plan, const Views& views);

  const kernels::ChannelsLastConv& conv() const;
  uint64_t scratch_bytes() const override;
  int64_t prepared_elements() const override;

  void AddTurn(const kernels::TensorRef& to, const kernels::TensorRef& from);
  void AddPrepare(const kernels::TensorRef& to, const kernels::TensorRef& from);
  void AddUnfold(const kernels::TensorRef& to, const kernels::TensorRef& from);
  void AddConvolution(const kernels::TensorRef& out, const kernels::TensorRef& input, const kernels::TensorRef* bias,
                      const kernels::TensorRef* addend);
  /// Behind the convolution.
  void SetAftermath(Aftermath after, const Picture& picture, float* pixels);
  /// Lets the first of the links compute the convolutions of all of them row by row (kernels/conv_band.h), each of
  /// which reads what the one before gives, and nobody else does. False where that would not pay.
  static bool MakeBand(std::span<ConvolutionLink* const> links);

  bool FindOperand(ir::KeptOperand& operand) const override;
  void WriteForm(device::RunContext& context, void* to) const override;
  void SetForm(const void* form) override { convolution_->refs[2].data = const_cast<void*>(form); }

 private:
  LaunchPtr MakePack(void* to) const;

  const std::shared_ptr<State> state_;
  const kernels::TensorRef weight_;
  const int64_t unfolded_elements_;
  Launch* convolution_ = nullptr;
  LaunchPtr in_band_;  // the same, where a band runs in its place
};

}  // namespace reprise::ops::pictures
