// SPDX-License-Identifier: Apache-2.0
//
// Programs name the library and link nothing of it: messages are made and read by their own protobuf. None of its names
// is here, so that none can stand in for theirs.
extern "C" [[gnu::visibility("default")]] const char* reprise_ascend_protobuf() {
  return "Reprise brings no protobuf along";
}
