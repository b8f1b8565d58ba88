"""Settings: what users may set, and how it is checked.

checks     checks of single values, for every room
table      every setting once: name, kind of value, default, help, and who takes it
"""

from plmix_dist.settings.checks import RandomState as RandomState
from plmix_dist.settings.checks import nearest as nearest
from plmix_dist.settings.checks import numbers as numbers
from plmix_dist.settings.checks import one_of as one_of
from plmix_dist.settings.checks import real_number as real_number
from plmix_dist.settings.checks import seed_of as seed_of
from plmix_dist.settings.checks import shown as shown
from plmix_dist.settings.checks import whole_number as whole_number
from plmix_dist.settings.checks import yes_or_no as yes_or_no
from plmix_dist.settings.table import BAYES_INITS as BAYES_INITS
from plmix_dist.settings.table import DAVIDSON_NAMES as DAVIDSON_NAMES
from plmix_dist.settings.table import INITS as INITS
from plmix_dist.settings.table import SETTINGS as SETTINGS
from plmix_dist.settings.table import TASKS as TASKS
from plmix_dist.settings.table import check_settings as check_settings
from plmix_dist.settings.table import default_of as default_of
from plmix_dist.settings.table import refuse_start_fields as refuse_start_fields
from plmix_dist.settings.table import settings_of as settings_of
from plmix_dist.settings.table import start_fields as start_fields
from plmix_dist.settings.table import take_settings as take_settings
