// SPDX-License-Identifier: Apache-2.0
//
// Operators called by their type, compiled when they are called (acl/acl_op_compiler.h). The CPU device has all of its
// operators at hand: compiling is checking, and neither engine, kind of compilation nor a path of operator sources
// changes what is computed. Options are kept for those who read them back.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "acl/acl_op_compiler.h"
#include "base/handle_table.h"
#include "ops/named_op.h"
#include "runtime/objects.h"
#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::HandleKind;
using reprise::HandleTable;
using reprise::Status;
using reprise::runtime::Api;
using reprise::runtime::NotNull;
namespace ops = reprise::ops;

namespace {

const void* const* Handles(const void* array) { return static_cast<const void* const*>(array); }

// The numbers of the options are not published here: any that an enum could have.
constexpr int kMaxOption = 255;

Status CheckOption(aclCompileOpt opt) {
  if (opt >= 0 && opt <= kMaxOption) return {};
  return Error(kInvalidArgument, fmt::format("opt is {}, must be 0 to {}", opt, kMaxOption))
      .Culprit("parameter opt")
      .Hint("pass an aclCompileOpt");
}

// Process-wide.
class CompileOptions {
 public:
  static CompileOptions& Get() {
    static auto* const options = new CompileOptions;
    return *options;
  }
  void Set(int option, const char* value) {
    std::lock_guard lock(mutex_);
    values_[option] = value;
  }
  /// Empty for an option that was never set.
  std::string Value(int option) {
    std::lock_guard lock(mutex_);
    const auto found = values_.find(option);
    return found != values_.end() ? found->second : std::string();
  }

 private:
  std::mutex mutex_;
  std::map<int, std::string> values_;
};

// There is nothing to choose yet; the object exists so that programs can make and destroy one.
struct GraphDumpOption {};

HandleTable<GraphDumpOption, HandleKind::kGraphDumpOption>& GraphDumpOptions() {
  static constinit reprise::NoDestroy<HandleTable<GraphDumpOption, HandleKind::kGraphDumpOption>> table;
  return table.value;
}

Status WriteFile(const char* path, const std::string& text) {
  const auto failed = [path] {
    return Error(kInvalidFile, fmt::format("\"{}\" cannot be written: {}", path, std::strerror(errno)))
        .Culprit("parameter graphDumpPath")
        .Hint("pass the path of a file in a folder that exists and may be written to");
  };
  std::FILE* file = std::fopen(path, "we");
  if (file == nullptr) return failed();
  const bool wrote = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  if (std::fclose(file) == 0 && wrote) return {};
  if (!wrote) errno = error;
  return failed();
}

}  // namespace

aclError aclopCompile(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[], int numOutputs,
                      const aclTensorDesc* const outputDesc[], const aclopAttr* attr, aclopEngineType /*engineType*/,
                      aclopCompileType /*compileFlag*/, const char* /*opPath*/) {
  return Api("aclopCompile", [&] {
    return ops::CheckNamed(
        {opType, numInputs, Handles(inputDesc), nullptr, numOutputs, Handles(outputDesc), nullptr, attr});
  });
}

aclError aclopCompileAndExecute(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[],
                                const aclDataBuffer* const inputs[], int numOutputs,
                                const aclTensorDesc* const outputDesc[], aclDataBuffer* const outputs[],
                                const aclopAttr* attr, aclopEngineType /*engineType*/, aclopCompileType /*compileFlag*/,
                                const char* /*opPath*/, aclrtStream stream) {
  return Api("aclopCompileAndExecute", [&] {
    return ops::RunNamed({opType, numInputs, Handles(inputDesc), Handles(inputs), numOutputs, Handles(outputDesc),
                          Handles(outputs), attr},
                         stream, ops::ShapeResult::kKeep);
  });
}

aclError aclopCompileAndExecuteV2(const char* opType, int numInputs, aclTensorDesc* inputDesc[],
                                  aclDataBuffer* inputs[], int numOutputs, aclTensorDesc* outputDesc[],
                                  aclDataBuffer* outputs[], aclopAttr* attr, aclopEngineType /*engineType*/,
                                  aclopCompileType /*compileFlag*/, const char* /*opPath*/, aclrtStream stream) {
  return Api("aclopCompileAndExecuteV2", [&] {
    return ops::RunNamed({opType, numInputs, Handles(inputDesc), Handles(inputs), numOutputs, Handles(outputDesc),
                          Handles(outputs), attr},
                         stream, ops::ShapeResult::kWriteBack);
  });
}

// Shapes may change from call to call in any case, so each flag is as good as the other.
aclError aclopSetCompileFlag(aclOpCompileFlag flag) {
  return Api("aclopSetCompileFlag", [&]() -> Status {
    if (flag >= 0) return {};
    return Error(kInvalidArgument, fmt::format("flag is {}, must not be negative", flag))
        .Culprit("parameter flag")
        .Hint("pass an aclOpCompileFlag");
  });
}

aclError aclSetCompileopt(aclCompileOpt opt, const char* value) {
  return Api("aclSetCompileopt", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(value, "value"));
    REPRISE_RETURN_IF_ERROR(CheckOption(opt));
    CompileOptions::Get().Set(opt, value);
    return {};
  });
}

// With the zero at its end; 0 for what is no option.
size_t aclGetCompileoptSize(aclCompileOpt opt) {
  size_t bytes = 0;
  Api("aclGetCompileoptSize", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckOption(opt));
    bytes = CompileOptions::Get().Value(opt).size() + 1;
    return {};
  });
  return bytes;
}

aclError aclGetCompileopt(aclCompileOpt opt, char* value, size_t length) {
  return Api("aclGetCompileopt", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(value, "value"));
    REPRISE_RETURN_IF_ERROR(CheckOption(opt));
    const std::string text = CompileOptions::Get().Value(opt);
    if (length < text.size() + 1) {
      return Error(kInvalidArgument,
                   fmt::format("length is {}, the value of option {} has {} bytes", length, opt, text.size() + 1))
          .Culprit("parameter length")
          .Hint("pass at least as many bytes as aclGetCompileoptSize returns");
    }
    std::memcpy(value, text.c_str(), text.size() + 1);
    return {};
  });
}

aclError aclGenGraphAndDumpForOp(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[],
                                 const aclDataBuffer* const inputs[], int numOutputs,
                                 const aclTensorDesc* const outputDesc[], aclDataBuffer* const outputs[],
                                 const aclopAttr* attr, aclopEngineType /*engineType*/, const char* graphDumpPath,
                                 const aclGraphDumpOption* graphDumpOpt) {
  return Api("aclGenGraphAndDumpForOp", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(graphDumpPath, "graphDumpPath"));
    if (graphDumpOpt != nullptr) {
      REPRISE_RETURN_IF_ERROR(
          reprise::runtime::FindObject(GraphDumpOptions(), graphDumpOpt, "aclGraphDumpOption").status());
    }
    REPRISE_ASSIGN_OR_RETURN(const std::string text,
                             ops::DescribeNamed({opType, numInputs, Handles(inputDesc), Handles(inputs), numOutputs,
                                                 Handles(outputDesc), Handles(outputs), attr}));
    return WriteFile(graphDumpPath, text);
  });
}

aclGraphDumpOption* aclCreateGraphDumpOpt(void) {
  void* handle = nullptr;
  Api("aclCreateGraphDumpOpt", [&]() -> Status {
    auto option = std::make_unique<GraphDumpOption>();
    handle = GraphDumpOptions().Insert(option.get());
    if (handle == nullptr) {
      return Error(kOutOfHostMemory, "the process has too many graph dump options")
          .Culprit(fmt::format("{} live options", GraphDumpOptions().live()))
          .Hint("destroy those that are no longer needed with aclDestroyGraphDumpOpt");
    }
    (void)option.release();  // the table holds it
    return {};
  });
  return static_cast<aclGraphDumpOption*>(handle);
}

aclError aclDestroyGraphDumpOpt(const aclGraphDumpOption* graphDumpOpt) {
  return Api("aclDestroyGraphDumpOpt", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(graphDumpOpt, "graphDumpOpt"));
    const std::unique_ptr<GraphDumpOption> option(GraphDumpOptions().Erase(graphDumpOpt));
    if (option != nullptr) return {};
    return reprise::runtime::FindObject(GraphDumpOptions(), graphDumpOpt, "aclGraphDumpOption").status();
  });
}
