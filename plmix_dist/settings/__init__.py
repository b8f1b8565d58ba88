"""Settings: what users may set, and how it is checked.

checks     checks of single values, for every room
table      every setting once: name, kind of value, default, help, and who takes it
"""

from plmix_dist.settings.checks import (
    RandomState,
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
    DAVIDSON_NAMES,
    INITS,
    SETTINGS,
    TASKS,
    check_settings,
    default_of,
    refuse_start_fields,
    settings_of,
    start_fields,
    take_settings,
)

__all__ = ["BAYES_INITS", "DAVIDSON_NAMES", "INITS", "SETTINGS", "TASKS", "RandomState", "check_settings"]
__all__ += ["default_of", "nearest", "numbers", "one_of", "real_number", "refuse_start_fields", "seed_of"]
__all__ += ["settings_of", "shown", "start_fields", "take_settings", "whole_number", "yes_or_no"]
