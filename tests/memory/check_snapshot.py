#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads snapshot files back with nothing but Python itself.

    check_snapshot.py pickle FILE...    NAME.pickle and NAME.json hold the same, in the structure that viewers expect
    check_snapshot.py picture FILE...   SVG is well-formed XML; HTML holds such a picture and loads nothing
"""

import json
import pickle
import pickletools
import re
import sys
import xml.etree.ElementTree as ElementTree

# What the viewers' own readers know.
OPCODES = {
    "PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "SETITEMS", "APPENDS", "TUPLE2", "BINUNICODE", "BININT",
    "BININT1", "BININT2", "LONG1", "NEWTRUE", "NEWFALSE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
}
FRAME = {"filename": str, "line": int, "name": str}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
SEGMENT = {
    "device": int, "address": int, "total_size": int, "allocated_size": int, "active_size": int, "requested_size": int,
    "stream": int, "segment_pool_id": tuple, "segment_type": str, "is_expandable": bool, "frames": list, "blocks": list,
}
ENTRY = {"action": str, "size": int, "stream": int, "pool_id": tuple, "frames": list, "time_us": int}
STATES = {"active_allocated", "active_pending_free", "inactive"}
ACTIONS = {
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
    "snapshot", "oom",
}


def plain(value):
    """Tuples as lists, which is all that JSON has."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def check_fields(value, fields):
    assert list(value) == list(fields), f"{list(value)} instead of {list(fields)}"
    for key, kind in fields.items():
        assert type(value[key]) is kind, f"{key} is {value[key]!r}"


def check_frames(frames):
    for frame in frames:
        check_fields(frame, FRAME)


def check_pickle(path, json_path):
    with open(path, "rb") as file:
        data = file.read()
    # Values above each mark: viewers pass them on as arguments of one call, of which there may not be too many.
    above = [0]
    for opcode, argument, _ in pickletools.genops(data):
        assert opcode.name in OPCODES, f"opcode {opcode.name}"
        assert opcode.name != "PROTO" or argument == 2
        if opcode.name == "MARK":
            above.append(0)
        elif opcode.name in ("APPENDS", "SETITEMS"):
            assert 0 < above.pop() <= 2000
        elif opcode.name == "TUPLE2":
            above[-1] -= 1
        elif opcode.name not in ("PROTO", "STOP", "BINPUT", "LONG_BINPUT"):
            above[-1] += 1
    assert above == [1]
    snapshot = pickle.loads(data)
    with open(json_path, encoding="utf-8") as file:
        assert plain(snapshot) == json.load(file), "pickle and JSON differ"

    assert list(snapshot) == ["segments", "device_traces", "allocator_settings", "external_annotations"]
    for segment in snapshot["segments"]:
        check_fields(segment, SEGMENT)
        check_frames(segment["frames"])
        assert len(segment["segment_pool_id"]) == 2
        assert segment["segment_type"] in ("small", "large")
        assert segment["device"] < len(snapshot["device_traces"]), "viewers do not offer this device"
        # Viewers find blocks by adding up sizes.
        address = segment["address"]
        for block in segment["blocks"]:
            check_fields(block, BLOCK)
            check_frames(block["frames"])
            assert block["state"] in STATES
            assert block["address"] == address
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]
    for trace in snapshot["device_traces"]:
        for entry in trace:
            where = "device_free" if entry["action"] == "oom" else "addr"
            check_fields(entry, {"action": str, where: int, **{k: v for k, v in ENTRY.items() if k != "action"}})
            check_frames(entry["frames"])
            assert entry["action"] in ACTIONS
    for key, value in snapshot["allocator_settings"].items():
        assert isinstance(key, str) and isinstance(value, str)
    assert snapshot["external_annotations"] == []
    # Viewers write into entries, so none may stand at two places; what they only read may.
    entries = [id(e) for trace in snapshot["device_traces"] for e in trace] + [id(s) for s in snapshot["segments"]]
    assert len(entries) == len(set(entries))
    print(f"{len(snapshot['segments'])} segments, {sum(map(len, snapshot['device_traces']))} entries")


def check_picture(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if path.endswith(".html"):
        assert text.startswith("<!DOCTYPE html>")
        assert not re.search(r"""(src|href)\s*=|@import|url\(""", text), "the page loads something"
        assert text.count("<script>") == text.count("</script>") == 1
        text = text[text.index("<svg") : text.index("</svg>") + len("</svg>")]
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {int(width)} {int(height)}"
    for element in root.iter():
        for name, low, high in (("x", 0, width), ("x1", 0, width), ("x2", 0, width), ("y", 0, height), ("y1", 0, height),
                                ("y2", 0, height)):
            if element.get(name) is not None:
                assert low <= float(element.get(name)) <= high, f"{element.tag} {name}={element.get(name)} is outside"
        if element.tag.endswith("path"):
            numbers = [float(n) for n in re.findall(r"-?[\d.]+", element.get("d"))]
            assert all(0 <= x <= width for x in numbers[::2]) and all(0 <= y <= height for y in numbers[1::2])
    print(f"{width:.0f} x {height:.0f}")


if __name__ == "__main__":
    for name in sys.argv[2:]:
        print(f"{name}: ", end="")
        if sys.argv[1] == "pickle":
            check_pickle(name, name.removesuffix(".pickle") + ".json")
        else:
            check_picture(name)
