"""Settings: what users may set, and how it is checked.

checks     checks of single values, for every room
table      every setting once: name, kind of value, default, help, and who takes it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plmix_dist.settings.checks import (
    alike,
    component_numbers,
    nearest,
    numbers,
    one_of,
    real_number,
    seed_of,
    shown,
    whole_number,
    yes_or_no,
)
from plmix_dist.settings.table import (
    BAYES_INITS,
    INITS,
    M_STEP_NAMES,
    SETTINGS,
    TASKS,
    Kind,
    Setting,
    check_settings,
    default_of,
    flag,
    real,
    refuse_start_fields,
    settings_of,
    start_fields,
    take_settings,
    whole,
    word,
    words,
)

if TYPE_CHECKING:
    from plmix_dist.settings.checks import RandomState as RandomState  # for annotations alone

__all__ = [
    "BAYES_INITS",
    "INITS",
    "M_STEP_NAMES",
    "SETTINGS",
    "TASKS",
    "Kind",
    "Setting",
    "alike",
    "check_settings",
    "component_numbers",
    "default_of",
    "flag",
    "nearest",
    "numbers",
    "one_of",
    "real",
    "real_number",
    "refuse_start_fields",
    "seed_of",
    "settings_of",
    "shown",
    "start_fields",
    "take_settings",
    "whole",
    "whole_number",
    "word",
    "words",
    "yes_or_no",
]
