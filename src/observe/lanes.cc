// SPDX-License-Identifier: Apache-2.0
#include "observe/lanes.h"
#include "runtime/task_store.h"

#include "ir/task_info.h"

namespace reprise::observe {

std::vector<ShownLane> LanesOf(const model::Model& model) {
  std::vector<ShownLane> lanes;
  for (ir::LaneId id = 0; id < model.graph().lanes().size(); ++id) lanes.push_back({&model.graph(), id, id == 0});
  for (const model::BoundStream& bound : model.bound())
    lanes.push_back({bound.stream->store()->graph().get(), 0, lanes.empty()});
  return lanes;
}

std::vector<ShownBody> BodiesOf(const ir::TaskInfo& info) {
  std::vector<ShownBody> bodies;
  bodies.reserve(info.bodies.size());
  for (const ir::BodyInfo& body : info.bodies) {
    bodies.push_back({static_cast<const model::Model*>(body.model), body.when});
  }
  return bodies;
}

size_t CountTasks(const model::Model& model) {
  size_t tasks = 0;
  for (const ShownLane& lane : LanesOf(model)) tasks += lane.lane().nodes.size();
  return tasks;
}

}  // namespace reprise::observe
