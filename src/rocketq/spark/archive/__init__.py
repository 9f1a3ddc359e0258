"""Messages kept as Parquet files under topic=/dt= directories, with a manifest. No Spark, no broker."""

from rocketq.spark.archive.coverage import Coverage
from rocketq.spark.archive.folder import ArchivedFile, ArchiveFolder, ArchiveState
from rocketq.spark.archive.lookup import Archive

__all__ = ["Archive", "ArchiveFolder", "ArchiveState", "ArchivedFile", "Coverage"]
