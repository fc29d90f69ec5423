// SPDX-License-Identifier: Apache-2.0
#include "engine/compile_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "base/text_file.h"
#include "compiler/compiled_file.h"
#include "compiler/export/export.h"
#include "compiler/hash.h"
#include "compiler/import/import.h"
#include "compiler/text.h"
#include "compiler/tune.h"
#include "engine/compiled_graph.h"
#include "engine/json_files.h"
#include "engine/numbers.h"
#include "engine/warnings.h"
#include "reprise/reprise.h"

namespace reprise::engine {
namespace {

// The processor as far as compiled graphs may differ by it.
std::string Processor() {
  std::string features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) features += "+avx2";
  if (__builtin_cpu_supports("avx512f")) features += "+avx512f";
#endif
  return "x86-64" + features;
}

// The operators that compiled graphs are made of: another library may have other operands under a type's name.
uint64_t OperatorsHash() {
  static const uint64_t hash = [] {
    uint64_t sum = compiler::HashOf("");
    const auto add_operands = [&](std::span<const opdef::Operand> operands) {
      for (const opdef::Operand& operand : operands) {
        sum =
            compiler::HashOf(fmt::format(" {} {} {} {}", operand.name, operand.flags, operand.bits, operand.like), sum);
      }
      sum = compiler::HashOf(";", sum);
    };
    for (const opdef::GraphOp& op : opdef::GraphOps()) {
      sum = compiler::HashOf(op.type, sum);
      add_operands(op.inputs);
      add_operands(op.outputs);
      for (const opdef::AttributeDef& each : op.attributes) {
        sum = compiler::HashOf(
            fmt::format(" {} {} {} {} {}", each.name, static_cast<int>(each.kind), each.number, each.real, each.text),
            sum);
      }
    }
    return sum;
  }();
  return hash;
}

uint64_t FingerprintOf(const compiler::Graph& graph) {
  uint64_t hash = compiler::HashOf(ToText(graph));
  for (const compiler::Node& node : graph.nodes) {
    if (!node.is_removed && node.constant != nullptr) {
      hash = compiler::HashOf(compiler::DigestText(node.constant->bytes), hash);
    }
    for (const auto& called : node.graphs) {
      if (called != nullptr) hash = hash * 31 + FingerprintOf(*called);
    }
  }
  return hash;
}

// Locks a file of the cache until it goes.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (fd_ >= 0) flock(fd_, LOCK_EX);
  }
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  const int fd_;
};

std::string TimeStamp() {
  const time_t now = time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  char text[32];
  strftime(text, sizeof text, "%Y%m%d%H%M%S", &local);
  return text;
}

}  // namespace

StatusOr<std::string> ModelOf(const compiler::Graph& optimised) {
  compiler::Graph graph = optimised;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {  // graphs that come from no model do not number them
    graph.at(graph.inputs[i]).attributes["index"] = static_cast<int64_t>(i);
  }
  return compiler::ExportBytes(graph, {.completes = true});
}

std::string AboutCompiled(const compiler::Graph& source, const compiler::CompileOptions& options) {
  compiler::PassOptions passes = options.passes;
  if (options.bank != nullptr) compiler::ApplyFusions(source, *options.bank, passes);
  return fmt::format(R"({}, "version": "{} {:016x}", "processor": "{}", "source": "{:016x}", "passes": "{:016x}")",
                     compiler::kCompiledFileStart, Version(), OperatorsHash(), Processor(), FingerprintOf(source),
                     compiler::HashOf(compiler::TextOf(passes)));
}

StatusOr<CompileCache> CompileCache::Open(const OptionSet& options, const compiler::Graph& source,
                                          const compiler::CompileOptions& compile_options) {
  CompileCache cache;
  const std::string folder(options.Get("ge.graph_compiler_cache_dir"));
  const std::string_view key = options.Get("ge.graph_key");
  if (folder.empty() || key.empty()) return cache;
  struct stat entry {};
  if (stat(folder.c_str(), &entry) != 0 || !S_ISDIR(entry.st_mode)) {
    return Fail(kGraphPrerunFailed, kBadValue,
                fmt::format("ge.graph_compiler_cache_dir is \"{}\", which is no folder", folder))
        .Culprit("option ge.graph_compiler_cache_dir")
        .Hint("make the folder first");
  }
  cache.folder_ = folder;
  cache.key_ = key;
  cache.fits_ = AboutCompiled(source, compile_options);
  return cache;
}

std::unique_ptr<compiler::Graph> CompileCache::Find() {
  if (folder_.empty()) return nullptr;
  const std::vector<CacheEntry> entries = ReadCacheIndex(PathOf(key_ + ".idx"));
  const auto entry = std::ranges::find(entries, key_, &CacheEntry::key);
  if (entry == entries.end()) return nullptr;
  std::string reason;
  std::unique_ptr<compiler::Graph> graph = Read(entry->file, &reason);
  if (graph == nullptr) {
    Warn(fmt::format("compiled graph {} is not used, and compiled anew: {}", PathOf(entry->file), reason));
  } else if (IsCacheDebugged(PathOf("cache.conf"))) {
    Warn(
        fmt::format("compiled graph {} fits; it is compiled anew because cache.conf asks for it", PathOf(entry->file)));
    return nullptr;
  }
  was_found_ = graph != nullptr;
  return graph;
}

std::unique_ptr<compiler::Graph> CompileCache::Read(const std::string& file, std::string* reason) const {
  // The index is a file of others: it names files beside it, and nothing else.
  if (file.empty() || file.find('/') != std::string::npos) {
    *reason = "the index names no file beside it";
    return nullptr;
  }
  std::ifstream stream(PathOf(file), std::ios::binary | std::ios::ate);
  std::string bytes(stream ? static_cast<size_t>(std::max<std::streamoff>(stream.tellg(), 0)) : 0, '\0');
  if (!stream || !stream.seekg(0) || !stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    *reason = "the file cannot be read";
    return nullptr;
  }
  return ReadBytes(bytes, reason);
}

std::unique_ptr<compiler::Graph> CompileCache::ReadBytes(const std::string& bytes, std::string* reason) const {
  const std::optional<compiler::CompiledParts> parts = compiler::SplitCompiled(bytes);
  if (!parts || !parts->about.starts_with(fits_.substr(0, fits_.find(", \"source\"")))) {
    *reason = "it is of another version, or for another processor";
  } else if (!parts->about.starts_with(fits_.substr(0, fits_.find(", \"passes\"")))) {
    *reason = "it is of another graph with the same key";
  } else if (parts->about != fits_) {
    *reason = "it was compiled with other options";
  } else if (!parts->model) {
    *reason = "it is damaged";
  } else {
    auto graph = compiler::ImportBytes(*parts->model);
    Status status = graph.ok() ? compiler::Verify(**graph) : std::move(graph).status();
    if (status.ok()) return std::move(graph).value();
    *reason = status.detail().what;
  }
  return nullptr;
}

void CompileCache::Keep(const compiler::Graph& optimised) const {
  if (folder_.empty()) return;
  if (const Status status = Write(optimised); !status.ok()) {
    Warn(fmt::format("compiled graph {} is not kept in {}: {}", key_, folder_, status.detail().what));
  }
}

Status CompileCache::Write(const compiler::Graph& optimised) const {
  REPRISE_ASSIGN_OR_RETURN(const std::string bytes, ModelOf(optimised));
  const FileLock lock(PathOf(key_ + ".lock"));
  const std::string file = fmt::format("{}_{}.om", key_, TimeStamp());
  // Whoever reads meanwhile sees the old file or the whole new one.
  const auto replace = [this](const std::string& name, const std::string& text) -> Status {
    const std::string path = PathOf(name);
    const std::string fresh = fmt::format("{}.{}", path, getpid());
    REPRISE_RETURN_IF_ERROR(WriteTextFile(fresh, text));
    if (std::rename(fresh.c_str(), path.c_str()) == 0) return {};
    std::remove(fresh.c_str());
    return Error(kWriteFile, fmt::format("\"{}\" cannot be replaced", path))
        .Hint("check the permissions of the folder");
  };
  REPRISE_RETURN_IF_ERROR(replace(file, compiler::PackCompiled(fits_, bytes)));
  std::vector<CacheEntry> entries = ReadCacheIndex(PathOf(key_ + ".idx"));
  std::erase_if(entries, [&](const CacheEntry& entry) {
    if (entry.key != key_) return false;
    if (entry.file != file && entry.file.starts_with(key_ + "_") && entry.file.find('/') == std::string::npos)
      std::remove(PathOf(entry.file).c_str());
    return true;
  });
  entries.push_back({key_, file});
  return replace(key_ + ".idx", CacheIndexText(entries));
}

}  // namespace reprise::engine
