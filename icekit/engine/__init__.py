"""Everything that talks to Spark, its JVM and Iceberg's classes in it; knows no catalog and no plan."""
