// SPDX-License-Identifier: Apache-2.0
//
// Parsers of other frameworks' models. Programs name the library and call nothing of it.
extern "C" [[gnu::visibility("default")]] const char* reprise_fmk_parser() {
  return "Reprise parses no models of other frameworks";
}
