package icekit;

import org.apache.iceberg.*;
import org.apache.iceberg.io.*;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.types.*;
import scala.collection.immutable.*;

/**
 * Catalyst's own expressions call the table's FileIO in Spark's tasks: no class of icekit is on the executors. The result counts as not
 * deterministic, so that the optimizer neither repeats it nor moves it into a filter.
 */
public class Lengths {
  private static final List NONE = Nil$.MODULE$;
  private final FileIO io;

  public Lengths(Table table) { this.io = ((Table) SerializableTable.copyOf(table)).io(); }

  /** The plan's columns, of which the first is a path, and "length": the bytes of that file, -1 if it does not exist. */
  public LogicalPlan of(LogicalPlan plan) {
    List columns = NONE;
    for (int i = plan.output().length() - 1; i >= 0; i--) columns = columns.$colon$colon(plan.output().apply(i));
    Expression text = call((Expression) columns.head(), "toString", new ObjectType(String.class), NONE, true);
    Expression io = new Literal(this.io, new ObjectType(FileIO.class));
    Expression file = call(io, "newInputFile", new ObjectType(InputFile.class), NONE.$colon$colon(text), true);
    Expression length = call(file, "getLength", DataTypes.LongType, NONE, false);
    Expression found = new If(call(file, "exists", DataTypes.BooleanType, NONE, true), length, Literal.create(new Long(-1L), DataTypes.LongType));
    Expression named = new Alias(found, "length", NamedExpression$.MODULE$.newExprId(), NONE, scala.Option.empty(), NONE);
    return new Project(((List) NONE.$colon$colon(named)).$colon$colon$colon(columns), plan);
  }

  private static Expression call(Expression target, String name, DataType type, List arguments, boolean isDeterministic) {
    return new Invoke(target, name, type, arguments, NONE, true, true, isDeterministic);
  }
}
