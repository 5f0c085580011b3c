package icekit;

import org.apache.iceberg.ContentFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;

/** What the other classes ask of a data or delete file. */
final class ContentFiles {
  private ContentFiles() {}

  static long sequence(ContentFile file) { return file.dataSequenceNumber() == null ? 0L : file.dataSequenceNumber().longValue(); }

  static boolean isVector(DeleteFile file) { return file.format() == FileFormat.PUFFIN; }

  /** What tells a delete file from others: a Puffin file holds many deletion vectors. */
  static String key(DeleteFile file) { return file.location() + " " + file.contentOffset(); }

  /** A path without its folder. */
  static String nameOf(String path) { return path.substring(path.lastIndexOf('/') + 1); }

  /** Texts that came joined by zeros. */
  static String[] split(String joined) { return joined.split(String.valueOf((char) 0)); }
}
