package fuse_stream;

import java.io.IOException;
import java.util.Base64;
import java.util.Iterator;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.ExternalAppendOnlyUnsafeRowArray;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;
import org.apache.spark.sql.types.StructType;

/**
 * What statements that change rows run in tasks. Compiled by the compiler that Spark has for its own
 * generated code, so without type arguments.
 */
public final class RowChanges {
  private RowChanges() {}

  /** Makes the writers of the changed rows of tasks. */
  public static final class DeltaFactory implements DeltaWriterFactory {
    private final DataWriterFactory changes;
    private final StructType changed;
    private final int columnCount;
    private final int hiddenCount;

    /**
     * @param changes writes changed rows: kind, block, position, columns, hidden columns
     * @param changed the types of a changed row
     * @param columnCount how many columns of the table a row has; none if rows are only deleted
     * @param hiddenCount how many hidden columns of the table come with a row that is updated
     */
    public DeltaFactory(
        DataWriterFactory changes, StructType changed, int columnCount, int hiddenCount) {
      this.changes = changes;
      this.changed = changed;
      this.columnCount = columnCount;
      this.hiddenCount = hiddenCount;
    }

    public DeltaWriter createWriter(int partition, long task) {
      return new Delta(
          this.changes.createWriter(partition, task), this.changed, this.columnCount,
          this.hiddenCount);
    }
  }

  /**
   * Gives the changed rows of a task to a writer that pulls rows: all deletes, then updates, then
   * inserts. Until then they are kept in Spark's memory, or on disk.
   */
  public static final class Delta implements DeltaWriter {
    private static final int ROWS_IN_MEMORY = 4096;
    private static final long BYTES_IN_MEMORY = 16L * 1024 * 1024;

    private final DataWriter changes;
    private final UnsafeProjection projection;
    private final GenericInternalRow place = new GenericInternalRow(3);
    private final GenericInternalRow noColumns;
    private final GenericInternalRow noHidden;
    private final JoinedRow columns = new JoinedRow();
    private final JoinedRow whole = new JoinedRow();
    private final ExternalAppendOnlyUnsafeRowArray[] kept = new ExternalAppendOnlyUnsafeRowArray[3];
    private boolean isEmpty = true;

    public Delta(
        DataWriter changes, StructType changed, int columnCount, int hiddenCount) {
      this.changes = changes;
      this.projection = UnsafeProjection.create(changed);
      this.noColumns = new GenericInternalRow(columnCount);
      this.noHidden = new GenericInternalRow(hiddenCount);
    }

    public void delete(Object hidden, Object id) {
      this.keep(0, (InternalRow) id, this.noColumns, this.noHidden);
    }

    public void update(Object hidden, Object id, Object row) {
      InternalRow own = hidden == null ? this.noHidden : (InternalRow) hidden;
      this.keep(1, (InternalRow) id, (InternalRow) row, own);
    }

    public void reinsert(Object hidden, Object row) {
      throw new UnsupportedOperationException("an update is not a delete and an insert");
    }

    public void insert(Object row) {
      this.keep(2, null, (InternalRow) row, this.noHidden);
    }

    public void write(Object row) {
      this.insert(row);
    }

    public void write(Object hidden, Object row) {
      this.insert(row);
    }

    public void writeAll(Iterator rows) {
      while (rows.hasNext()) {
        this.insert(rows.next());
      }
    }

    private void keep(int kind, InternalRow id, InternalRow row, InternalRow hidden) {
      this.place.update(0, Integer.valueOf(kind));
      this.place.update(1, id == null ? null : (Object) Long.valueOf(id.getLong(0)));
      this.place.update(2, id == null ? null : (Object) Long.valueOf(id.getLong(1)));
      this.columns.apply(row, hidden);
      this.whole.apply(this.place, this.columns);
      if (this.kept[kind] == null) {
        this.kept[kind] =
            new ExternalAppendOnlyUnsafeRowArray(
                ROWS_IN_MEMORY, BYTES_IN_MEMORY, Integer.MAX_VALUE, Long.MAX_VALUE);
      }
      this.kept[kind].add(this.projection.apply(this.whole));
      this.isEmpty = false;
    }

    public WriterCommitMessage commit() throws IOException {
      if (this.isEmpty) {
        return new PythonWriterCommitMessage(new byte[0]);
      }
      this.changes.writeAll(new KeptRows(this.kept));
      return this.changes.commit();
    }

    public void abort() throws IOException {
      this.changes.abort();
    }

    public void close() throws IOException {
      for (int kind = 0; kind < this.kept.length; kind++) {
        if (this.kept[kind] != null) {
          this.kept[kind].clear();
        }
      }
      this.changes.close();
    }

    public CustomTaskMetric[] currentMetricsValues() {
      return new CustomTaskMetric[0];
    }
  }

  /** The rows of several arrays, one array after the other. */
  private static final class KeptRows implements Iterator {
    private final ExternalAppendOnlyUnsafeRowArray[] kept;
    private int next = 0;
    private scala.collection.Iterator rows = null;

    KeptRows(ExternalAppendOnlyUnsafeRowArray[] kept) {
      this.kept = kept;
    }

    public boolean hasNext() {
      while (this.rows == null || !this.rows.hasNext()) {
        if (this.next == this.kept.length) {
          return false;
        }
        ExternalAppendOnlyUnsafeRowArray array = this.kept[this.next++];
        this.rows = array == null ? null : array.generateIterator();
      }
      return true;
    }

    public Object next() {
      if (!this.hasNext()) {
        throw new java.util.NoSuchElementException();
      }
      return this.rows.next();
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }
  }

  /** Reads the rows of another factory, without those that are hidden. */
  public static final class ShownRowsFactory implements PartitionReaderFactory {
    private final PartitionReaderFactory all;
    private final Broadcast words;
    private final Broadcast starts;
    private final int blockAt;
    private final int rowAt;

    /**
     * @param all reads all rows
     * @param words a bit for each row of the blocks that hide rows, set if it is hidden
     * @param starts the index of the first word of each block; -1 if it hides no row
     * @param blockAt the column of a row with the number of its block
     * @param rowAt the column of a row with its position in the block
     */
    public ShownRowsFactory(
        PartitionReaderFactory all, Broadcast words, Broadcast starts, int blockAt, int rowAt) {
      this.all = all;
      this.words = words;
      this.starts = starts;
      this.blockAt = blockAt;
      this.rowAt = rowAt;
    }

    public PartitionReader createReader(InputPartition partition) {
      return new ShownRows(
          this.all.createReader(partition), (long[]) this.words.value(),
          (long[]) this.starts.value(), this.blockAt, this.rowAt);
    }

    public PartitionReader createColumnarReader(InputPartition partition) {
      throw new UnsupportedOperationException("rows are read one by one");
    }

    public boolean supportColumnarReads(InputPartition partition) {
      return false;
    }
  }

  private static final class ShownRows implements PartitionReader {
    private final PartitionReader all;
    private final long[] words;
    private final long[] starts;
    private final int blockAt;
    private final int rowAt;

    ShownRows(PartitionReader all, long[] words, long[] starts, int blockAt, int rowAt) {
      this.all = all;
      this.words = words;
      this.starts = starts;
      this.blockAt = blockAt;
      this.rowAt = rowAt;
    }

    public boolean next() throws IOException {
      while (this.all.next()) {
        InternalRow row = (InternalRow) this.all.get();
        long start = this.starts[(int) row.getLong(this.blockAt)];
        if (start < 0) {
          return true;
        }
        long at = row.getLong(this.rowAt);
        if ((this.words[(int) (start + (at >> 6))] >>> (at & 63) & 1L) == 0L) {
          return true;
        }
      }
      return false;
    }

    public Object get() {
      return this.all.get();
    }

    public CustomTaskMetric[] currentMetricsValues() {
      return this.all.currentMetricsValues();
    }

    public void initMetricsValues(CustomTaskMetric[] metrics) {
      this.all.initMetricsValues(metrics);
    }

    public void close() throws IOException {
      this.all.close();
    }
  }

  /** Messages of tasks as text: an array of bytes would be decoded byte by byte in Python. */
  public static final class MessageTexts {
    private final Base64.Encoder encoder = Base64.getEncoder();

    public String of(Object message) {
      return this.encoder.encodeToString(((PythonWriterCommitMessage) message).pickledMessage());
    }
  }
}
