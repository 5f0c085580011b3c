package icekit;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;

/**
 * Iceberg reads delete files in threads of its own (BaseDeleteLoader.execute, ThreadPools.getDeleteWorkerPool), whose CPU time Spark counts for
 * no task. In a local session they are threads of this JVM and can be asked.
 */
public class DeleteThreads {
  public long cpuNanos() {
    ThreadMXBean bean = ManagementFactory.getThreadMXBean();
    ThreadInfo[] threads = bean.getThreadInfo(bean.getAllThreadIds());
    long sum = 0;
    for (int i = 0; i < threads.length; i++) {
      if (threads[i] != null && threads[i].getThreadName().startsWith("iceberg-delete-worker-pool")) {
        sum += Math.max(0L, bean.getThreadCpuTime(threads[i].getThreadId()));
      }
    }
    return sum;
  }
}
