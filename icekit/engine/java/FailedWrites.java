package icekit;

import java.lang.reflect.Field;
import java.util.*;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.v2.AppendDataExec;
import org.apache.spark.sql.util.QueryExecutionListener;

/** Knows the query ids of writes that failed, which the names of their files contain, by the name of the tasks that they rewrite. */
public class FailedWrites implements QueryExecutionListener {
  private final Map idsByName = Collections.synchronizedMap(new HashMap());

  public void onSuccess(String name, QueryExecution query, long nanoseconds) {}

  public void onFailure(String name, QueryExecution query, Exception error) {
    try {
      if (!(query.analyzed() instanceof AppendData)) return;
      scala.Option tasks = ((AppendData) query.analyzed()).writeOptions().get("rewritten-file-scan-task-set-id");
      if (tasks.isEmpty() || !(query.executedPlan() instanceof AppendDataExec)) return;
      Object write = ((AppendDataExec) query.executedPlan()).write();
      for (Class each = write.getClass(); each != null; each = each.getSuperclass()) {
        Field[] fields = each.getDeclaredFields();
        for (int i = 0; i < fields.length; i++) {
          if (!fields[i].getName().equals("queryId")) continue;
          fields[i].setAccessible(true);
          idsByName.put(tasks.get(), fields[i].get(write));
          return;
        }
      }
    } catch (Exception unknown) {
      // Then its files stay until orphan files are removed.
    }
  }

  public String queryId(String name) { return (String) idsByName.get(name); }
}
