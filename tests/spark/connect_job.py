"""The same as anybody does, by a client of Spark Connect: `python connect_job.py URL`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from astyqueue.errors import BadSetting
from astyqueue.spark import register
from astyqueue.spark.pipeline.streaming import Stream


def main(url: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the server, which is started here
    spark = register(SparkSession.builder.remote("local[2]").config("spark.driver.memory", "512m").getOrCreate())
    place = {"url": url, "queue": "emails"}
    rows = spark.range(0, 100, 1, 2).selectExpr("id", "concat('user-', id) AS name")
    rows.write.format("astyqueue").mode("append").options(**place, id_column="id", query="connect").save()
    rows.write.format("astyqueue").mode("append").options(**place, id_column="id", query="connect").save()
    found = spark.read.format("astyqueue").options(**place).load()
    sys.stdout.write(f"{type(spark).__module__} messages {found.count()}\n")
    try:
        Stream(spark, Path("lake"))
    except BadSetting as refused:
        sys.stdout.write(f"{refused}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
