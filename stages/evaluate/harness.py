"""Benchmark tasks through the lm-evaluation-harness (extra ``eval``), on its own data from the hub."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from formats.errors import DataError, SettingError
from formats.fingerprints import files_sha256
from stages import models
from stages.evaluate.settings import Job
from stages.reporting import Reporter


def require() -> str:
    """The installed version of the harness.

    Raises:
        SettingError: it is not installed.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lm-eval")
    except PackageNotFoundError:
        raise SettingError(
            "--tasks needs the lm-evaluation-harness", fix="pip install 'cluster-cli[eval]'"
        ) from None


def contents(folder: str | None) -> dict[str, Any]:
    """What tasks depend on, for the key: the harness's version, and the files of a task folder.

    Raises:
        SettingError: the harness is not installed, or the folder holds no task.
    """
    found: dict[str, Any] = {"lm_eval": require()}
    if folder is not None:
        files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        if not any(path.suffix in (".yaml", ".yml") for path in files):
            raise SettingError(
                f"--task-folder {folder} holds no task", fix="name a folder with .yaml files"
            )
        found["task_folder"] = files_sha256(
            Path(folder), [str(path.relative_to(folder)) for path in files]
        )
    return found


def find_tasks(manager: Any, patterns: tuple[str, ...]) -> list[str]:
    """The tasks that names and patterns such as ``mmlu_*`` stand for.

    Args:
        manager: the harness's ``TaskManager``.

    Raises:
        SettingError: the harness knows none of that name.
    """
    names = []
    for pattern in patterns:
        found = manager.match_tasks([pattern])
        if not found:
            raise SettingError(
                f"--tasks: the lm-evaluation-harness has no task {pattern!r}",
                fix="`lm_eval --tasks list` shows them",
            )
        names += found
    return list(dict.fromkeys(names))


def run_tasks(job: Job, reporter: Reporter) -> dict[str, Any]:
    """Figures per task: the harness's metrics, with its standard errors, and the task's version.

    Raises:
        SettingError: as ``find_tasks``; or a task runs code and ``run_code`` is not set.
        DataError: the harness cannot get a task's data, or fails.
    """
    require()
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=job.settings.task_folder)
    names = find_tasks(manager, job.settings.tasks)
    device = models.compute_device()
    files = models.find_model(job.model)
    trust = job.trust_remote_code
    tokenizer = models.load_tokenizer(files, trust_remote_code=trust)
    dtype = models.resolve_dtype(job.settings.dtype, device)
    model = models.load_model(files, dtype=dtype, trust_remote_code=trust).to(device)
    reporter.message(f"lm-evaluation-harness: {', '.join(names)}")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for data
            found = simple_evaluate(
                model=HFLM(
                    pretrained=model,
                    tokenizer=tokenizer,
                    max_length=job.settings.max_length,
                    batch_size=max(1, job.batch_tokens // 512),
                ),
                tasks=names,
                task_manager=manager,
                limit=job.settings.task_limit,
                apply_chat_template=bool(tokenizer.chat_template),
                bootstrap_iters=job.settings.samples,
                random_seed=job.settings.seed,
                numpy_random_seed=job.settings.seed,
                torch_random_seed=job.settings.seed,
                fewshot_random_seed=job.settings.seed,
                confirm_run_unsafe_code=job.settings.run_code,
            )
    except Exception as error:  # the hub, a task's own code, or the harness can fail in any way
        text = " ".join(str(error).split())[:300]
        raise DataError(
            f"the lm-evaluation-harness failed on {', '.join(names)}: {type(error).__name__}: {text}",
            fix="its data come from the hub (is there a network?); offline, put the questions into a "
            "file with choices and answers and give it as --data",
        ) from error
    return tasks_of(found)


def tasks_of(found: dict[str, Any]) -> dict[str, Any]:
    """The harness's answer as plain JSON: numbers only, and per task its version."""
    versions = found.get("versions", {})
    return {
        task: {
            **{name: value for name, value in figures.items() if type(value) in (int, float)},
            "version": str(versions.get(task)),
        }
        for task, figures in found["results"].items()
    }
