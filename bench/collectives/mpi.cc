// SPDX-License-Identifier: Apache-2.0
//
// Open MPI, or another: mpirun -n RANKS collectives_mpi FOLDER. Between acts its ranks sleep in a read.
#include <mpi.h>

#include <cstdlib>
#include <set>
#include <vector>

#include "acts.h"
#include "values.h"

namespace {

struct Buffers {
  std::vector<float> send, receive;
};

void Do(const std::string& name, Buffers& buffers, int count, int ranks) {
  const int block = count / ranks;
  const float* const send = buffers.send.data();
  float* const receive = buffers.receive.data();
  if (name == "allreduce") {
    MPI_Allreduce(send, receive, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (name == "allgather") {
    MPI_Allgather(send, block, MPI_FLOAT, receive, block, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (name == "reduce_scatter") {
    MPI_Reduce_scatter_block(send, receive, block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (name == "all_to_all") {
    MPI_Alltoall(send, block, MPI_FLOAT, receive, block, MPI_FLOAT, MPI_COMM_WORLD);
  } else {
    MPI_Bcast(receive, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 2) return 2;
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Buffers buffers;
  std::set<std::string> checked;
  bench::Acts acts;
  for (const char* each : {"allreduce", "allgather", "reduce_scatter", "all_to_all", "broadcast"}) {
    const std::string name = each;
    acts[name] = [&, name](std::istringstream& arguments) {
      size_t bytes = 0;
      arguments >> bytes;
      const size_t count = bytes / sizeof(float);
      if (checked.insert(name + std::to_string(bytes)).second) {
        buffers.send.resize(std::max(buffers.send.size(), count));
        buffers.receive.resize(std::max(buffers.receive.size(), count));
        for (size_t i = 0; i < count; ++i) buffers.send[i] = bench::ValueOf(rank, i);
        if (name == "broadcast") buffers.receive = buffers.send;
        Do(name, buffers, static_cast<int>(count), ranks);
        bench::CheckResult(name, buffers.receive.data(), count, rank, ranks);
      }
      return bench::Timed(
          arguments, [] { MPI_Barrier(MPI_COMM_WORLD); }, [&] { Do(name, buffers, static_cast<int>(count), ranks); });
    };
  }
  const int code = bench::Serve(acts, argv[1], rank);
  MPI_Finalize();
  return code;
}
