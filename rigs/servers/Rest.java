import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's own REST catalog on loopback: java Rest.java PORT KEY=VALUE..., the properties of the catalog behind it. */
public class Rest {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = new HashMap<>();
    for (int i = 1; i < arguments.length; i++) {
      String[] pair = arguments[i].split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    var adapter = new RESTCatalogAdapter(CatalogUtil.buildIcebergCatalog("rest_backend", properties, new org.apache.hadoop.conf.Configuration()));
    var context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
    Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
    server.setHandler(context);
    server.start();
    server.join();
  }
}
