# SPDX-License-Identifier: Apache-2.0
"""Pictures of memory snapshots: segments with their blocks, or bytes by the place that allocated them."""
from html import escape

_WIDTH = 1000
_ROW = 22
_COLOURS = {"active_allocated": "#4477aa", "active_pending_free": "#ccbb44", "inactive": "#dddddd"}


def _mib(size):
    return f"{size / (1 << 20):.2f} MiB"


def _place(block):
    if not block["frames"]:
        return "unknown place (no history was recorded)"
    frame = block["frames"][0]
    return f"{frame['filename']}:{frame['line']} {frame['name']}"


def _segment_rows(snapshot):
    largest = max((segment["total_size"] for segment in snapshot["segments"]), default=1)
    for segment in snapshot["segments"]:
        title = (
            f"npu:{segment['device']} pool {segment['segment_pool_id']} stream {segment['stream']:#x}: "
            f"{_mib(segment['allocated_size'])} of {_mib(segment['total_size'])}"
        )
        bars = []
        for block in segment["blocks"]:
            about = f"{block['address']:#x}, {block['size']} bytes, {block['state']}, {_place(block)}"
            bars.append(
                ((block["address"] - segment["address"]) / largest, block["size"] / largest, block["state"], about)
            )
        yield title, bars


def _place_rows(snapshot):
    places = {}
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                count, size = places.get(_place(block), (0, 0))
                places[_place(block)] = (count + 1, size + block["size"])
    largest = max((size for _, size in places.values()), default=1)
    for place, (count, size) in sorted(places.items(), key=lambda item: -item[1][1]):
        yield f"{_mib(size)} in {count} blocks: {place}", [(0, size / largest, "active_allocated", place)]


def segments_svg(snapshot, by_place):
    rows = list(_place_rows(snapshot) if by_place else _segment_rows(snapshot))
    height = 2 * _ROW * max(1, len(rows)) + _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 20}" height="{height}" '
        'font-family="sans-serif" font-size="12">'
    ]
    for number, (title, bars) in enumerate(rows):
        top = 2 * _ROW * number + _ROW // 2
        parts.append(f'<text x="10" y="{top + 14}">{escape(title)}</text>')
        for begin, length, state, about in bars:
            parts.append(
                f'<rect x="{10 + begin * _WIDTH:.2f}" y="{top + _ROW}" width="{max(length * _WIDTH, 0.5):.2f}" '
                f'height="{_ROW - 6}" fill="{_COLOURS[state]}" stroke="white" stroke-width="0.3">'
                f"<title>{escape(about)}</title></rect>"
            )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
