package icekit;

import java.util.*;
import org.apache.iceberg.Table;
import org.apache.iceberg.io.*;

/** Lists a folder with a table's own FileIO. */
public class Storage {
  private final FileIO io;

  public Storage(Table table) { this.io = table.io(); }

  /** The files written since a moment, each as milliseconds, a space and its location. */
  public List since(String folder, long milliseconds) {
    List found = new ArrayList();
    Iterator files = ((SupportsPrefixOperations) io).listPrefix(folder).iterator();
    while (files.hasNext()) {
      FileInfo file = (FileInfo) files.next();
      if (file.createdAtMillis() >= milliseconds) {
        found.add(file.createdAtMillis() + " " + file.location());
      }
    }
    return found;
  }
}
