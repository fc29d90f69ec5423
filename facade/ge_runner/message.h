// SPDX-License-Identifier: Apache-2.0
//
// Between the two sources of the library, which are compiled with different forms of std::string.
#pragma once

/// The calling thread's pending message, taken away; "" when there is none. Valid until the thread's next call.
const char* reprise_ge_message() noexcept;
