# SPDX-License-Identifier: Apache-2.0
"""Writes what was measured to build/ops (or REPRISE_OPS_REPORT_DIR), for scripts/ops_report.py."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

REPORTS = Path(os.environ.get("REPRISE_OPS_REPORT_DIR", Path(__file__).resolve().parents[2] / "build" / "ops"))


def pytest_sessionfinish(session):
    harness = sys.modules.get("harness")
    if harness is None or not harness.COUNTS:
        return
    REPORTS.mkdir(parents=True, exist_ok=True)
    worker = getattr(session.config, "workerinput", {}).get("workerid", "main")
    data = {"counts": harness.COUNTS, "worst": [[name, dtype, error] for (name, dtype), error in harness.WORST.items()]}
    (REPORTS / f"{worker}.json").write_text(json.dumps(data))
