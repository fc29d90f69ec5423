// SPDX-License-Identifier: Apache-2.0
#include "compiler/tuning_bank.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "device/scheduler.h"

namespace reprise::compiler {
namespace {

constexpr int kVersion = 1;

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string vendor, family, model;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("vendor_id")) vendor = value;
    if (line.starts_with("cpu family")) family = value;
    if (line.starts_with("model\t")) model = value;
  }
  return vendor.empty() ? std::string("processor") : fmt::format("{} {} {}", vendor, family, model);
}

Status Refuse(const std::string& path, std::string what) {
  return Error(kInvalidArgument, std::move(what))
      .Culprit(fmt::format("tuning bank {}", path))
      .Hint("pass a folder that exists or can be made, and may be written to");
}

}  // namespace

std::string MachineName() {
  static const std::string name = fmt::format("{}, {} cores", ProcessorName(), device::UsableCores());
  return name;
}

StatusOr<std::shared_ptr<TuningBank>> TuningBank::Open(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Refuse(folder, fmt::format("the folder cannot be made: {}", error.message()));
  std::shared_ptr<TuningBank> bank(new TuningBank);
  MutexLock lock(bank->mutex_);
  bank->path_ = PathIn(folder);
  std::ifstream file(bank->path_);
  if (!file && std::filesystem::exists(bank->path_)) return Refuse(bank->path_, "the file cannot be read");
  size_t damaged = 0;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
    const bool is_whole = entry.is_object() && entry.contains("version") && entry["version"].is_number_integer() &&
                          entry.contains("cpu") && entry["cpu"].is_string() && entry.contains("key") &&
                          entry["key"].is_string() && entry.contains("choice") && entry["choice"].is_string() &&
                          entry.contains("us") && entry["us"].is_number();
    if (!is_whole) {
      ++damaged;
    } else if (entry["version"] == kVersion && entry["cpu"] == MachineName()) {
      bank->entries_[entry["key"].get<std::string>()] = {entry["choice"].get<std::string>(), entry["us"].get<double>()};
    }
  }
  if (damaged != 0) REPRISE_LOG(kWarning, "GE", "{}: {} lines are no entries and are not used", bank->path_, damaged);
  return bank;
}

std::optional<TuningBank::Entry> TuningBank::Find(const std::string& key) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? std::nullopt : std::optional(found->second);
}

size_t TuningBank::size() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

Status TuningBank::Add(const std::string& key, Entry entry) {
  const nlohmann::json line = {
      {"version", kVersion}, {"cpu", MachineName()}, {"key", key}, {"choice", entry.choice}, {"us", entry.us}};
  const std::string text = line.dump() + "\n";
  MutexLock lock(mutex_);
  const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return Refuse(path_, fmt::format("the file cannot be written: {}", std::strerror(errno)));
  ::flock(file, LOCK_EX);
  const ssize_t written = ::write(file, text.data(), text.size());
  const int error = errno;
  ::close(file);  // and with it the lock
  if (written != static_cast<ssize_t>(text.size())) {
    return Refuse(path_, fmt::format("the file cannot be written: {}", written < 0 ? std::strerror(error) : "no room"));
  }
  entries_[key] = std::move(entry);
  return {};
}

}  // namespace reprise::compiler
