// SPDX-License-Identifier: Apache-2.0
//
// Environment variables: one table (env.def), read once, at first use. docs/environment.md is generated from the table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace reprise {

enum class EnvVar {
#define REPRISE_ENV(id, name, fallback, meaning) id,
#include "base/env.def"
#undef REPRISE_ENV
};

/// Text of the variable at its first use in the process, or the table's default. The first call of all also tells on
/// standard error which variables of the environment look like misspelt ones of ours.
const std::string& Env(EnvVar variable);

/// The variable as a number; the default when the text is no number.
int64_t EnvInt(EnvVar variable);
/// The variable as a number, brought into the range from `low` to `high`.
int64_t EnvInt(EnvVar variable, int64_t low, int64_t high);

/// The variable as a size in bytes; understands the suffixes K, M, G (powers of 1024).
uint64_t EnvBytes(EnvVar variable);

/// The whole text as a number; nothing when it is none or does not fit.
std::optional<int64_t> ParseInt(std::string_view text);
/// The whole text as a size in bytes, as EnvBytes reads it.
std::optional<uint64_t> ParseBytes(std::string_view text);

/// Says on standard error, once for each variable and only for ours (REPRISE_…), why its value is not taken:
/// "reprise: REPRISE_WORKERS=two is no number; the default 0 is used".
void ComplainOfSetting(EnvVar variable, std::string_view why) noexcept;

/// Name as the user sets it; for messages.
const char* EnvName(EnvVar variable);

}  // namespace reprise
