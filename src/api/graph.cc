// SPDX-License-Identifier: Apache-2.0
#include "reprise/graph.h"

#include <atomic>
#include <exception>
#include <utility>

#include "api/graph_impl.h"
#include "api/streams.h"
#include "api/throw.h"
#include "reprise/stream.h"

namespace reprise {

Graph::Graph() : Graph(Options()) {}
Graph::Graph(Options options) : impl_(std::make_shared<Impl>(options)) { impl_->holder = this; }

Graph::~Graph() {
  if (impl_) impl_->Reset();
}

Graph::Graph(Graph&& other) noexcept : impl_(std::move(other.impl_)) {
  if (impl_) impl_->holder = this;
}

Graph& Graph::operator=(Graph&& other) noexcept {
  if (this == &other) return *this;
  if (impl_) impl_->Reset();
  impl_ = std::move(other.impl_);
  if (impl_) impl_->holder = this;
  return *this;
}

void Graph::CaptureBegin(const CaptureOptions& options) {
  api::Call("reprise::Graph::CaptureBegin", [&] { return impl_->CaptureBegin(options); });
}

void Graph::CaptureEnd() {
  api::Call("reprise::Graph::CaptureEnd", [&] { return impl_->CaptureEnd(); });
}

void Graph::Instantiate() {
  api::Call("reprise::Graph::Instantiate", [&] { return impl_->Instantiate(); });
}

void Graph::Replay(void* stream) {
  api::Call("reprise::Graph::Replay", [&] { return impl_->Replay(stream); });
}

void Graph::Reset() noexcept { impl_->Reset(); }

GraphState Graph::state() const noexcept { return impl_->state(); }

PoolId Graph::pool() const {
  api::Call("reprise::Graph::pool", [&] { return impl_->CheckCaptured("pool()"); });
  return impl_->pool();
}

GraphMemory Graph::memory() const {
  return api::Value("reprise::Graph::memory", [&] { return impl_->Memory(); });
}

void* Graph::raw_graph() const {
  return api::Value("reprise::Graph::raw_graph", [&] { return impl_->RawGraph(); });
}

void* Graph::raw_executable() const {
  return api::Value("reprise::Graph::raw_executable", [&] { return impl_->RawExecutable(); });
}

bool Graph::Dump(const std::string& path, bool every_task) const {
  return api::Value("reprise::Graph::Dump", [&] { return impl_->Dump(path, every_task); });
}

void* Graph::BeginIf(const void* predicate, void* stream) {
  return api::Value("reprise::Graph::BeginIf", [&] { return impl_->BeginIf(predicate, stream); });
}

void Graph::EndConditional() {
  api::Call("reprise::Graph::EndConditional", [&] { return impl_->EndConditional(); });
}

void Graph::AbandonConditional(const std::string& why) {
  api::Call("reprise::Graph::AbandonConditional", [&] { return impl_->AbandonConditional(why); });
}

Graph& Graph::Capturing(void* stream) {
  return *api::Value("reprise::Graph::Capturing", [&]() -> StatusOr<Graph*> {
    REPRISE_ASSIGN_OR_RETURN(const runtime::Stream* on, api::FindStreamOrCurrent(stream));
    const uint64_t capture = on->capture_id();
    const Impl::Owner owner = capture != 0 ? Impl::FindOwner(capture) : Impl::Owner();
    if (owner.graph != nullptr) return owner.graph->holder.load();
    return Error(kStreamNotCaptured,
                 on->Describe() +
                     (capture == 0 ? " is not being captured" : " is being captured, but not by a reprise::Graph"))
        .Hint("call it between CaptureBegin and CaptureEnd, with a stream of that capture");
  });
}

// ---- Capture ----

Capture::Capture(Graph& graph, void* stream) : graph_(graph), exceptions_(std::uncaught_exceptions()) {
  Graph::CaptureOptions options;
  options.stream = stream;
  Begin(options);
}

Capture::Capture(Graph& graph, const Graph::CaptureOptions& options)
    : graph_(graph), exceptions_(std::uncaught_exceptions()) {
  Begin(options);
}

// The captured stream is the current one inside the scope.
void Capture::Begin(const Graph::CaptureOptions& options) {
  graph_.CaptureBegin(options);
  open_ = true;
  device_ = CurrentDevice();
  if (options.stream == nullptr) {
    previous_stream_ = api::ExchangeCurrentStream(device_, CurrentStream(device_));
  } else {
    previous_stream_ = api::ExchangeCurrentStream(device_, options.stream);
  }
}

void Capture::End() {
  if (!std::exchange(open_, false)) return;
  struct Restore {
    int device;
    void* stream;
    ~Restore() { api::ExchangeCurrentStream(device, stream); }
  } const restore{device_, previous_stream_};
  graph_.CaptureEnd();
}

Capture::~Capture() noexcept(false) {
  if (!open_) return;
  if (std::uncaught_exceptions() == exceptions_) {
    End();
    return;
  }
  open_ = false;
  graph_.Reset();
  api::ExchangeCurrentStream(device_, previous_stream_);
}

}  // namespace reprise
