// SPDX-License-Identifier: Apache-2.0
#include "common/words.h"

#include <cctype>
#include <cstdint>
#include <set>
#include <vector>

#include "device/capture_places.h"
#include "device/runtime.h"
#include "device/stream.h"

namespace torch_npu {
namespace {

struct Rewording {
  std::string_view core;  // {}: a word or a number
  std::string_view python;
};

// Sentences first, then names: the first that fits wins. Those that no Python program can get are not here.
constexpr Rewording kSentences[] = {
    {"before aclmdlRICaptureEnd, record an Ex event as the last task of stream {} and call "
     "aclrtStreamWaitEvent(stream {}, event)",
     "call torch.npu.current_stream().wait_stream(s) before the capture ends, where s is stream {0} and stream {1} is "
     "current"},
    {"let stream {} wait for the last event of a forked stream",
     "call torch.npu.current_stream().wait_stream(s) before the capture ends, where s is a forked stream and stream "
     "{0} is current"},
    {"not an event record", "and no other stream waits for it"},
    {"nobody waits for its last event record", "no stream waits for the event that was recorded on it last"},
    {"end the capture with aclmdlRICaptureEnd first, or use a stream outside the capture",
     "do this after the `with torch.npu.graph(...)` block, or on a stream outside of the capture"},
    {"end the capture with aclmdlRICaptureEnd first, or wait for single streams that are not captured",
     "do this after the `with torch.npu.graph(...)` block, or wait for single streams that are not captured"},
    {"wait until the capture has ended, or use an event that is not recorded in it",
     "do this after the `with torch.npu.graph(...)` block, or with an event that is not recorded in it"},
    {"record the event inside the capture, or use an ACL_EVENT_EXTERNAL event for order with work outside",
     "what another stream does belongs to the capture only when that stream was forked first: call "
     "s.wait_stream(torch.npu.current_stream()) before `with torch.npu.stream(s):`; for order with work outside of the "
     "graph use torch.npu.ExternalEvent()"},
    {"use a stream made by aclrtCreateStream", "use a stream of torch.npu.Stream(), not the default stream"},
    {"create a stream with aclrtCreateStream and make it current, or name it in the options",
     "use `with torch.npu.graph(g):`, which captures a stream of its own, or make one current: `with "
     "torch.npu.stream(torch.npu.Stream()):`"},
    {"end that capture first, or use another stream",
     "captures do not nest: leave the outer `with torch.npu.graph(...)` block first, or use another stream"},
    {"end its capture first, or use another Graph",
     "leave its `with torch.npu.graph(...)` block first, or use another torch.npu.NPUGraph()"},
    {"call Reset() first, or use another Graph", "call g.reset() first, or use another torch.npu.NPUGraph()"},
    {"call CaptureBegin first", "call capture_begin first, or use `with torch.npu.graph(g):`"},
    {"make that stream current again and call CaptureEnd once more: the capture is still open",
     "make that stream current again, with torch.npu.set_stream or `with torch.npu.stream(s):`, and call capture_end "
     "once more: the capture is still open"},
    {"call CaptureEnd there, or capture with CaptureMode::kRelaxed: the capture is still open",
     "call capture_end there, or capture with capture_error_mode=\"relaxed\": the capture is still open"},
    {"call CaptureEnd first", "leave the `with torch.npu.graph(...)` block (or call capture_end) before the replay"},
    {"capture with CaptureBegin and CaptureEnd first", "capture first: `with torch.npu.graph(g):`"},
    {"capture first", "capture first: `with torch.npu.graph(g):`"},
    {"make the Graph with Options{keep_graph = true} to instantiate it again after changes",
     "make the graph with torch.npu.NPUGraph(keep_graph=True) to instantiate it again after changes"},
    {"make the Graph with Options{keep_graph = true}", "make the graph with torch.npu.NPUGraph(keep_graph=True)"},
    {"pass pool() of another graph, or what NewPoolId() returns",
     "pass pool() of another graph, or what torch.npu.graph_pool_handle() returns"},
    {"call BeginIf between CaptureBegin and CaptureEnd", "call it within `with torch.npu.graph(g):`"},
    {"replay on another stream, or after the capture: a graph cannot hold another one",
     "call g.replay() after the `with torch.npu.graph(...)` block, or on a stream outside of the capture: a graph "
     "cannot hold another one"},
    {"random numbers are drawn in a capture that no reprise::Graph began",
     "random numbers are drawn in a capture that torch.npu.graph did not begin"},
    {"pass what GetState has returned", "pass what torch.npu.get_rng_state() or Generator.get_state() has returned"},
    {"create the event with aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC), or with "
     "aclrtCreateEventWithFlag(&event, ACL_EVENT_EXTERNAL) for order with work outside of the graph",
     "use torch.npu.Event(), or torch.npu.ExternalEvent() for order with work outside of the graph"},
    {"it was created with flags 0x40 by aclrtCreateEventExWithFlag", "it was made with interprocess=True"},
    {"find the call that invalidated it in the text, end the capture and begin again",
     "mend the call that the text names, and capture again"},
    {"close the group with aclmdlRICaptureTaskGrpEnd on stream {} before anything else is submitted",
     "call torch.npu.graph_task_group_end with stream {0} before anything else is submitted"},
    {"close the group with aclmdlRICaptureTaskGrpEnd first", "call torch.npu.graph_task_group_end first"},
    {"capture of model {} on stream {}, begun by thread {} in mode GLOBAL",
     "the capture on stream {1}, begun by thread {2} with capture_error_mode=\"global\""},
    {"capture of model {} on stream {}, begun by thread {} in mode THREAD_LOCAL",
     "the capture on stream {1}, begun by thread {2} with capture_error_mode=\"thread_local\""},
    {"capture of model {} on stream {}, begun by thread {} in mode RELAXED",
     "the capture on stream {1}, begun by thread {2} with capture_error_mode=\"relaxed\""},
    {"Replay without a preceding successful capture", "replay() without a preceding successful capture"},
    {"1 streams of the context are", "a stream of the device is"},
    {"streams of the context are", "streams of the device are"},
    {"Ex event {}", "event {0}"},
    {"call aclrtRecordEvent first", "call record() first, outside of captures if its time is asked for"},
};

constexpr Rewording kNames[] = {
    {"aclmdlRICaptureBegin", "NPUGraph.capture_begin"},
    {"aclmdlRICaptureEnd", "NPUGraph.capture_end"},
    {"aclmdlRICaptureTaskGrpBegin", "torch.npu.graph_task_group_begin"},
    {"aclmdlRICaptureTaskGrpEnd", "torch.npu.graph_task_group_end"},
    {"aclmdlRICaptureTaskUpdateBegin", "torch.npu.graph_task_update_begin"},
    {"aclmdlRICaptureTaskUpdateEnd", "torch.npu.graph_task_update_end"},
    {"aclmdlRIExecuteAsync", "NPUGraph.replay"},
    {"aclmdlRIExecute", "NPUGraph.replay"},
    {"aclmdlRIDestroy", "NPUGraph.reset"},
    {"aclrtCreateEventExWithFlag", "torch.npu.Event"},
    {"aclrtCreateEventWithFlag", "torch.npu.Event"},
    {"aclrtCreateStream", "torch.npu.Stream"},
    {"aclrtCreateStreamWithConfig", "torch.npu.Stream"},
    {"aclrtEventElapsedTime", "Event.elapsed_time"},
    {"aclrtEventGetTimestamp", "Event.recorded_time"},
    {"aclrtGetDeviceCount", "torch.npu.device_count"},
    {"aclrtGetMemInfo", "torch.npu.mem_get_info"},
    {"aclrtIpcGetEventHandle", "Event.ipc_handle"},
    {"aclrtIpcOpenEventHandle", "Event.from_ipc_handle"},
    {"aclrtLaunchCallback", "torch.npu.launch_callback"},
    {"aclrtMemcpy", "a copy between host and device"},
    {"aclrtMemcpyAsync", "a copy between host and device"},
    {"aclrtMalloc", "torch.empty(..., device=\"npu\")"},
    {"aclrtMallocHost", "torch.empty(..., pin_memory=True)"},
    {"aclrtQueryEventStatus", "Event.query"},
    {"aclrtRecordEvent", "Event.record"},
    {"aclrtResetEvent", "ExternalEvent.reset"},
    {"aclrtSetDevice", "torch.npu.set_device"},
    {"aclrtStreamQuery", "Stream.query"},
    {"aclrtStreamWaitEvent", "Stream.wait_event"},
    {"aclrtSynchronizeDevice", "torch.npu.synchronize"},
    {"aclrtSynchronizeEvent", "Event.synchronize"},
    {"aclrtSynchronizeStream", "Stream.synchronize"},
    {"reprise::DrawBernoulli", "bernoulli_"},
    {"reprise::DrawCauchy", "cauchy_"},
    {"reprise::DrawDropout", "dropout"},
    {"reprise::DrawExponential", "exponential_"},
    {"reprise::DrawGeometric", "geometric_"},
    {"reprise::DrawInteger", "random_"},
    {"reprise::DrawLogNormal", "log_normal_"},
    {"reprise::DrawNormal", "normal_"},
    {"reprise::DrawPermutation", "torch.randperm"},
    {"reprise::DrawUniform", "uniform_"},
    {"reprise::Generator", "torch.Generator"},
    {"reprise::Generator::Clone", "Generator.clone_state"},
    {"reprise::Generator::offset", "Generator.get_offset"},
    {"reprise::Generator::GetState", "Generator.get_state"},
    {"reprise::Generator::ManualSeed", "Generator.manual_seed"},
    {"reprise::Generator::Seed", "Generator.seed"},
    {"reprise::Generator::SetOffset", "Generator.set_offset"},
    {"reprise::Generator::SetState", "Generator.set_state"},
    {"reprise::Generator::ShareWith", "Generator.graphsafe_set_state"},
    {"reprise::Graph", "torch.npu.NPUGraph"},
    {"reprise::Graph::BeginIf", "NPUGraph.begin_capture_to_if_node"},
    {"reprise::Graph::CaptureBegin", "NPUGraph.capture_begin"},
    {"reprise::Graph::CaptureEnd", "NPUGraph.capture_end"},
    {"reprise::Graph::Capturing", "NPUGraph.get_currently_capturing_graph"},
    {"reprise::Graph::Dump", "NPUGraph.debug_dump"},
    {"reprise::Graph::EndConditional", "NPUGraph.end_capture_to_conditional_node"},
    {"reprise::Graph::Instantiate", "NPUGraph.instantiate"},
    {"reprise::Graph::Replay", "NPUGraph.replay"},
    {"reprise::Graph::pool", "NPUGraph.pool"},
    {"reprise::Graph::raw_executable", "NPUGraph.raw_npu_graph_exec"},
    {"reprise::Graph::raw_graph", "NPUGraph.raw_npu_graph"},
    {"reprise::LaunchOperation", "an operator"},
    {"reprise::MemPool", "torch.npu.MemPool"},
    {"reprise::device_memory::Allocate", "an allocation of npu memory"},
    {"reprise::device_memory::DumpSnapshot", "torch.npu.memory._dump_snapshot"},
    {"reprise::device_memory::EmptyCache", "torch.npu.empty_cache"},
    {"reprise::device_memory::RecordStream", "Tensor.record_stream"},
    {"reprise::device_memory::SetFraction", "torch.npu.set_per_process_memory_fraction"},
    {"reprise::device_memory::Snapshot", "torch.npu.memory_snapshot"},
    {"reprise::device_memory::Stats", "torch.npu.memory_stats"},
    {"reprise::host_memory::Allocate", "an allocation of pinned memory"},
};

bool IsWordCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Length of what `pattern` matches at the start of `text`, 0 if it does not; the words that stand for {} go to `words`.
size_t Match(std::string_view text, std::string_view pattern, std::vector<std::string_view>& words) {
  words.clear();
  size_t at = 0;
  for (size_t i = 0; i < pattern.size();) {
    if (pattern.substr(i, 2) == "{}") {
      const size_t begin = at;
      while (at < text.size() && IsWordCharacter(text[at])) ++at;
      if (at == begin) return 0;
      words.push_back(text.substr(begin, at - begin));
      i += 2;
      continue;
    }
    if (at == text.size() || text[at] != pattern[i]) return 0;
    ++at;
    ++i;
  }
  return at;
}

std::string Filled(std::string_view python, const std::vector<std::string_view>& words) {
  std::string filled;
  for (size_t i = 0; i < python.size(); ++i) {
    if (python[i] == '{' && i + 2 < python.size() && python[i + 2] == '}' && std::isdigit(python[i + 1]) != 0) {
      filled += words[static_cast<size_t>(python[i + 1] - '0')];
      i += 2;
    } else {
      filled += python[i];
    }
  }
  return filled;
}

std::string WithSentences(std::string_view text) {
  std::string out;
  std::vector<std::string_view> words;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    if (at == 0 || !IsWordCharacter(text[at - 1])) {
      for (const Rewording& each : kSentences) {
        length = Match(text.substr(at), each.core, words);
        if (length != 0 && at + length < text.size() && IsWordCharacter(each.core.back()) &&
            IsWordCharacter(text[at + length])) {
          length = 0;  // the middle of a word
        }
        if (length == 0) continue;
        out += Filled(each.python, words);
        break;
      }
    }
    if (length == 0) {
      out += text[at];
      length = 1;
    }
    at += length;
  }
  return out;
}

std::string WithNames(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && (IsWordCharacter(text[end]) || text.substr(end, 2) == "::" ||
                                 (end > at && text[end] == ':' && text[end - 1] == ':'))) {
      ++end;
    }
    if (end == at) {
      out += text[at++];
      continue;
    }
    out += NameInPython(text.substr(at, end - at));
    at = end;
  }
  return out;
}

// The number behind `mark` at `at`; -1 if there is none.
int64_t NumberAfter(std::string_view text, size_t at, std::string_view mark, size_t& end) {
  if (text.substr(at, mark.size()) != mark || (at > 0 && IsWordCharacter(text[at - 1]))) return -1;
  end = at + mark.size();
  int64_t number = -1;
  for (int digits = 0; end < text.size() && digits < 9 && std::isdigit(text[end]) != 0; ++end, ++digits) {
    number = (number < 0 ? 0 : number * 10) + (text[end] - '0');
  }
  return number;
}

// "stream 3" is the runtime's number; programs see stream_id.
std::string WithStreams(std::string_view text) {
  std::string out;
  std::set<int64_t> said;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const int64_t number = NumberAfter(text, at, "stream ", end);
    if (number < 0) {
      out += text[at++];
      continue;
    }
    out += text.substr(at, end - at);
    if (said.insert(number).second) {
      const c10::StreamId id = StreamIdOf(CurrentDevice(), static_cast<int32_t>(number));
      if (id > 0) out += " (stream_id=" + std::to_string(id) + ")";
    }
    constexpr std::string_view kBegun = ", begun by thread ";
    if (text.substr(end).starts_with(kBegun)) {
      const std::string place = CaptureBegunAt(CurrentDevice(), static_cast<int32_t>(number));
      if (!place.empty()) out += ", begun at " + place + ", by thread ";
      if (!place.empty()) end += kBegun.size();
    }
    at = end;
  }
  return out;
}

}  // namespace

std::string NameInPython(std::string_view function) {
  for (const Rewording& each : kNames) {
    if (each.core == function) return std::string(each.python);
  }
  return std::string(function);
}

std::string WordsInPython(std::string_view text) { return WithStreams(WithNames(WithSentences(text))); }

std::string ForkInPython(std::string_view text) {
  const size_t joined = text.find(" joined ");
  const size_t stream = text.rfind("stream ", joined);
  if (joined == std::string_view::npos || stream == std::string_view::npos) return "";
  size_t end = 0;
  const int64_t number = NumberAfter(text, stream, "stream ", end);
  const std::string place = number < 0 ? "" : ForkedAt(CurrentDevice(), static_cast<int32_t>(number));
  return place.empty() ? "" : "; it was forked at " + place;
}

}  // namespace torch_npu
