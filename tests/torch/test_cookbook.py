"""The programs of docs/cookbook.md that are in Python, as they stand there."""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_programs_of_the_cookbook(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "tests/install/cookbook.py", ROOT / "docs/cookbook.md", tmp_path, "python"],
        capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "programs" in done.stdout


def test_links_of_readme_and_docs_lead_somewhere():
    done = subprocess.run([sys.executable, ROOT / "scripts/check_links.py"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout
