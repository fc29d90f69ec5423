// SPDX-License-Identifier: Apache-2.0
//
// What a linker puts around ordinary code: versions of the symbols of another library, functions that run at the begin
// and at the end, an address to be filled in.
#include <stdio.h>

const char* y = "y";

__attribute__((constructor)) static void Begin(void) { puts(y); }

const void* repriseKernelTable(void);
const void* repriseKernelTable(void) { return &y; }
