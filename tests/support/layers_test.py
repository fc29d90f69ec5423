#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_layers.py on the project with one more way into a stream: it must find each."""
import importlib.util
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
spec = importlib.util.spec_from_file_location("check_layers", REPO / "scripts" / "check_layers.py")
layers = importlib.util.module_from_spec(spec)
sys.modules["check_layers"] = layers
spec.loader.exec_module(layers)


class Door(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.repo = Path(self.folder.name)
        for name in (layers.STREAM, layers.DOOR, "src/capture/session.cc", "src/runtime/task_store.cc"):
            (self.repo / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, self.repo / name)
        (self.repo / "facade/acl").mkdir(parents=True)

    def tearDown(self):
        self.folder.cleanup()

    def edit(self, name, old, new):
        path = self.repo / name
        text = path.read_text(encoding="utf-8")
        self.assertEqual(text.count(old), 1, f"{old!r} in {name}")
        path.write_text(text.replace(old, new), encoding="utf-8")

    def expect(self, *parts):
        found = layers.check_door(self.repo)
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_the_project_has_one_door(self):
        self.assertEqual(layers.check_door(self.repo), [])
        self.assertEqual(layers.check_door(), [])

    def test_a_friend_of_the_queue(self):
        self.edit(layers.STREAM, "  friend Status Commit(Stream& stream);", "  friend Status Commit(Stream& stream);\n  friend class Event;")
        self.expect("class Event is a friend", layers.DOOR)

    def test_a_friend_of_the_sink(self):
        self.edit(layers.STREAM, "  friend Status SubmitToSink(", "  friend Status Sneak(Stream& stream);\n  friend Status SubmitToSink(")
        self.expect("Status Sneak is a friend")

    def test_a_public_member_that_takes_tasks(self):
        self.edit(layers.STREAM, "  void* handle() const { return handle_; }", "  void* handle() const { return handle_; }\n  Status Slip(const ir::Task& task);")
        self.expect("takes a task and is public")

    def test_a_public_record_of_the_sink(self):
        self.edit(layers.STREAM, "  /// The stream is being destroyed: the sink drops", "  virtual Status Take(Stream& stream, const ir::Task& task) = 0;\n  /// The stream is being destroyed: the sink drops")
        self.expect("takes a task and is public")

    def test_a_node_past_the_door(self):
        (self.repo / "src/capture/side.cc").write_text("  session.model().graph().Add(0, task);\n", encoding="utf-8")
        self.expect("src/capture/side.cc:1", "past the door")

    def test_a_task_given_to_the_session(self):
        (self.repo / "src/capture/side.cc").write_text("  return session->Record(stream, task, taken);\n", encoding="utf-8")
        self.expect("src/capture/side.cc:1", "to a sink past the door")

    def test_a_stored_task_past_the_door(self):
        (self.repo / "facade/acl/side.cc").write_text("  (void)stream.store()->Add(task);\n", encoding="utf-8")
        self.expect("facade/acl/side.cc:1", "past the door")

    def test_the_entrance_of_captures_from_a_facade(self):
        (self.repo / "facade/acl/side.cc").write_text("  return runtime::SubmitToSink(stream, task);\n", encoding="utf-8")
        self.expect("facade/acl/side.cc:1", "call Submit")


if __name__ == "__main__":
    unittest.main()
