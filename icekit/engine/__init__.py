"""Everything that talks to Spark, its JVM and Iceberg's classes; knows no catalog and no plan."""
