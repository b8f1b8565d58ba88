"""Rankings on disk or behind a URL: chunked, compressed and checksummed Zarr arrays, read leaf by leaf."""

from plmix_dist.store.location import Location
from plmix_dist.store.memberships import MembershipPlan, MembershipSession, write_memberships
from plmix_dist.store.partition import PartitionTask, RejectedRows, write_partition
from plmix_dist.store.reader import RankingStore, open_store
from plmix_dist.store.targets import check_file, check_target
from plmix_dist.store.verify import Damage, verify_partition, verify_top
from plmix_dist.store.write_plan import WritePlan
from plmix_dist.store.writer import WriteSession, check_output

__all__ = [
    "Damage",
    "Location",
    "MembershipPlan",
    "MembershipSession",
    "PartitionTask",
    "RankingStore",
    "RejectedRows",
    "WritePlan",
    "WriteSession",
    "check_file",
    "check_output",
    "check_target",
    "open_store",
    "verify_partition",
    "verify_top",
    "write_memberships",
    "write_partition",
]
