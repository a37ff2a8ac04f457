"""The plan of a survey in its scratch folder: written once, read by every worker and by a run that goes on.

What is fixed before points are added (settings, trend, heights) is one NPZ; workers read it once and know it by its
digest. `request.json` says what the user asked for: a run can only go on with the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.apps.survey_plan import Plan, SurveyError
from gpgmap_ros.config.yaml import load_config, save_config
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.mapping.survey import SurveyModel, Trend
from gpgmap_ros.storage.atomic import write_json
from gpgmap_ros.storage.npz import read_arrays, write_arrays

MODEL, SETTINGS, PLAN, REQUEST = "model.npz", "model.yaml", "plan.json", "request.json"


def save_model(scratch: Path, model: SurveyModel) -> str:
    """Write what all workers need; its digest."""
    scratch.mkdir(parents=True, exist_ok=True)
    save_config(model.config, scratch / SETTINGS)
    trend = model.trend
    arrays = {
        "trend": trend.heights,
        "origin": np.array(trend.origin),
        "edge": np.array(trend.edge),
        "heights": np.array(model.heights),
        "ground_width": np.array(model.ground_width),
    }
    write_arrays(scratch / MODEL, arrays)
    return model_digest(scratch)


def model_digest(scratch: Path) -> str:
    """Of the model in a folder."""
    content = (scratch / SETTINGS).read_bytes() + (scratch / MODEL).read_bytes()
    return hashlib.sha256(content).hexdigest()[:16]


@lru_cache(maxsize=2)
def load_model(scratch: Path, digest: str) -> SurveyModel:
    """What `save_model` wrote. RuntimeError where it is another by now."""
    arrays = read_arrays(scratch / MODEL, ("trend", "origin", "edge", "heights", "ground_width"))
    if model_digest(scratch) != digest:
        raise RuntimeError(f"{scratch}: the plan changed while the survey ran: begin again")
    x, y = (float(value) for value in arrays["origin"])
    low, high = (float(value) for value in arrays["heights"])
    trend = Trend(arrays["trend"], (x, y), float(arrays["edge"]))
    return SurveyModel(load_config(scratch / SETTINGS), trend, (low, high), float(arrays["ground_width"]))


def save_plan(
    scratch: Path, planned: Plan, files: list[dict[str, Any]], crs: Crs, notices: dict[str, list[str]]
) -> None:
    """Write what a run that goes on needs besides the model.

    files: those of `survey_files.PlannedFile` as plain values; notices: warnings, and what is missing
    """
    write_json(
        scratch / PLAN,
        {
            "guesses": planned.guesses, "points": planned.points, "density": planned.density, "files": files,
            "crs": dataclasses.asdict(crs), "notices": notices,
        },
    )  # fmt: skip


def load_plan(scratch: Path) -> tuple[Plan, list[dict[str, Any]], Crs, dict[str, list[str]]]:
    """What `save_plan` wrote, with the model. SurveyError where there is none."""
    try:
        content = json.loads((scratch / PLAN).read_text())
        model = load_model(scratch, model_digest(scratch))
        crs = dict(content["crs"])
        if crs["keys"] is not None:
            directory, doubles, text = crs["keys"]
            crs["keys"] = (tuple(directory), tuple(doubles), text)
        planned = Plan(
            model.config, model.trend, tuple(content["guesses"]), content["points"], content["density"],
            model.heights,
        )  # fmt: skip
        return planned, content["files"], Crs(**crs), content["notices"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SurveyError(
            f"{scratch}: the plan of the earlier run can't be read ({error}): begin again"
        ) from error


def save_request(scratch: Path, request: dict[str, Any]) -> None:
    """Write what the user asked for, in plain JSON."""
    scratch.mkdir(parents=True, exist_ok=True)
    write_json(scratch / REQUEST, request)


def check_request(scratch: Path, request: dict[str, Any]) -> None:
    """SurveyError where the earlier run was asked for something else: what."""
    try:
        before = json.loads((scratch / REQUEST).read_text())
    except (OSError, ValueError) as error:
        raise SurveyError(
            f"{scratch.parent}: there is no unfinished run to go on with: leave --resume out"
        ) from error
    now = json.loads(json.dumps(request))
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if changed:
        raise SurveyError(
            f"{scratch.parent}: the unfinished run had other {', '.join(changed)}: call it with the same, or begin"
            " again with --overwrite"
        )
