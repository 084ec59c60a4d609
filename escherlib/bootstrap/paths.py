"""Where the project lives."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT_FILE = ROOT / "environment.yml"
PROJECT_FILE = ROOT / "pyproject.toml"
