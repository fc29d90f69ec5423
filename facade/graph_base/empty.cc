// SPDX-License-Identifier: Apache-2.0
//
// Newer toolkits have the classes of graphs in several libraries. All of them are in libgraph.so, which a search in
// this library finds.
extern "C" [[gnu::visibility("default")]] const char* reprise_graph_base() { return "libgraph.so has the classes"; }
