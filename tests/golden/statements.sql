ALTER TABLE `lake`.`t` UNSET TBLPROPERTIES IF EXISTS ('a', 'it\'s')
ALTER TABLE `lake`.`db`.`t` SET TBLPROPERTIES ('a.b' = 'it\'s', 'c' = '2')
SET spark.sql.shuffle.partitions = 2
SET `spark.sql.iceberg.planning-mode` = `local`
RESET spark.sql.shuffle.partitions
RESET `spark.sql.iceberg.planning-mode`
CALL `lake`.system.p(table => 'db.t', retain_last => 10, dry_run => false, sort_by => array('day', 'it\'s'), options => map('a', '1', 'b', '2'))
CALL `lake`.system.rewrite_data_files(table => 'db.t', options => map('use-starting-sequence-number', 'false'))
