"""Rankings, models, memberships and checkpoints on disk or behind a URL; damage is an error, never a wrong number.

- location, access: bytes under keys, on local disk or behind any fsspec URL; errors that say what to do
- targets: where a result may be written, and what is never replaced
- lock: one writer at a time
- publication: a plan, its parts by any number of workers, one last file that makes the result readable
- sealed: JSON sealed by its digest, arrays as `.npy`, the versions of all formats
- arrays, manifest: columns of a partition and their checked Zarr arrays, the description of a store
- partition, writer, reader: a store is written, and read leaf by leaf
- memberships, mixture, checkpoints: the other results
"""

from plmix_dist.store.checkpoints import Checkpoint
from plmix_dist.store.location import Location
from plmix_dist.store.memberships import MembershipPlan, MembershipSession, write_memberships
from plmix_dist.store.mixture import MixtureParams
from plmix_dist.store.partition import PartitionTask, RejectedRows, WritePlan, write_partition
from plmix_dist.store.reader import RankingStore, open_store
from plmix_dist.store.sealed import sha256
from plmix_dist.store.targets import HOW_TO_REPLACE, check_file, check_target
from plmix_dist.store.writer import WriteSession, check_output

__all__ = ["HOW_TO_REPLACE", "Checkpoint", "Location", "MembershipPlan", "MembershipSession", "MixtureParams"]
__all__ += ["PartitionTask", "RankingStore", "RejectedRows", "WritePlan", "WriteSession", "check_file"]
__all__ += ["check_output", "check_target", "open_store", "sha256", "write_memberships", "write_partition"]
