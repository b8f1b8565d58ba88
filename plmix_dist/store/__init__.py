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

from plmix_dist.store.location import Location as Location
from plmix_dist.store.memberships import MembershipPlan as MembershipPlan
from plmix_dist.store.memberships import MembershipSession as MembershipSession
from plmix_dist.store.memberships import write_memberships as write_memberships
from plmix_dist.store.partition import PartitionTask as PartitionTask
from plmix_dist.store.partition import RejectedRows as RejectedRows
from plmix_dist.store.partition import WritePlan as WritePlan
from plmix_dist.store.partition import write_partition as write_partition
from plmix_dist.store.reader import RankingStore as RankingStore
from plmix_dist.store.reader import open_store as open_store
from plmix_dist.store.targets import check_file as check_file
from plmix_dist.store.targets import check_target as check_target
from plmix_dist.store.writer import WriteSession as WriteSession
from plmix_dist.store.writer import check_output as check_output
