"""Messages kept as Parquet files under topic=/dt= directories, with a manifest. No Spark, no broker."""

from rocketq.spark.archive.coverage import Coverage
from rocketq.spark.archive.files import ArchivedFile
from rocketq.spark.archive.folder import ArchiveFolder, ArchiveState
from rocketq.spark.archive.lookup import Archive

__all__ = ["Archive", "ArchiveFolder", "ArchiveState", "ArchivedFile", "Coverage"]
