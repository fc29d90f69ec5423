// SPDX-License-Identifier: Apache-2.0
#include "engine/banks.h"

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/env.h"
#include "base/mutex.h"
#include "base/no_destroy.h"
#include "engine/warnings.h"

namespace reprise::engine {
namespace {

using compiler::TuningBank;

struct OpenBanks {
  struct Bank {
    std::shared_ptr<TuningBank> bank;
    uintmax_t bytes = 0;  ///< of the file when it was read
  };
  Mutex mutex;
  std::map<std::string, Bank> by_folder REPRISE_GUARDED_BY(mutex);
};

OpenBanks& TheBanks() {
  static NoDestroy<OpenBanks> banks;
  return banks.value;
}

uintmax_t FileBytes(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : bytes;
}

}  // namespace

std::vector<std::string> BankFolders(std::string_view environment, std::string_view option, std::string_view home) {
  std::vector<std::string> folders;
  if (!environment.empty()) folders.emplace_back(environment);
  if (!option.empty()) folders.emplace_back(option);
  if (!home.empty()) folders.push_back(std::string(home) + "/Ascend/latest/data/aoe/custom/op");
  return folders;
}

std::vector<std::string> BankFolders(const OptionSet& options) {
  const char* const home = std::getenv("HOME");
  return BankFolders(Env(EnvVar::kTuneBankPath), options.Get("ge.op_bank_path"), home != nullptr ? home : "");
}

StatusOr<std::shared_ptr<TuningBank>> OpenBank(const std::string& folder) {
  OpenBanks& banks = TheBanks();
  MutexLock lock(banks.mutex);
  const uintmax_t bytes = FileBytes(TuningBank::PathIn(folder));
  if (const auto found = banks.by_folder.find(folder); found != banks.by_folder.end()) {
    const auto& [bank, read] = found->second;
    std::error_code error;
    const bool was_removed = bytes == 0 && (bank->size() != 0 || !std::filesystem::exists(folder, error));
    if (read == bytes && !was_removed) return bank;
  }
  REPRISE_ASSIGN_OR_RETURN(std::shared_ptr<TuningBank> bank, TuningBank::Open(folder));
  banks.by_folder[folder] = {bank, bytes};
  return bank;
}

std::shared_ptr<const TuningBank> FindBank(const OptionSet& options) {
  for (const std::string& folder : BankFolders(options)) {
    std::error_code error;
    if (!std::filesystem::exists(TuningBank::PathIn(folder), error)) continue;
    auto bank = OpenBank(folder);
    if (bank.ok()) return std::move(bank).value();
    Warn(std::move(bank).status().detail().what + ": " + TuningBank::PathIn(folder));
  }
  return nullptr;
}

}  // namespace reprise::engine
