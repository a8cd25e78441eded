// What the paper of PMFS measures of Neo4j as a library: nodes deleted with their edges in a transaction, inserted again, and shortest paths.
//
//   Graph make HOME nodes=N degree=N          makes a graph that grows as the web's do: who has many edges gets more
//   Graph delete|insert|query HOME nodes=N degree=N count=N cache=BYTES
//
// Both ends of all edges come from one seed, so each run deletes and asks for the same. It prints the seconds of what is measured alone, which it
// has done once before with other nodes: or else most of the time would be Java's, compiling.
// The transaction logs are not given room before they are written, for which they would take 256 MiB. Nobody watches the store for files that
// are deleted, as what is done to them below `pmfs run` the kernel can't tell.

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.neo4j.configuration.GraphDatabaseSettings;
import org.neo4j.dbms.api.DatabaseManagementService;
import org.neo4j.dbms.api.DatabaseManagementServiceBuilder;
import org.neo4j.graphalgo.BasicEvaluationContext;
import org.neo4j.graphalgo.GraphAlgoFactory;
import org.neo4j.graphdb.Direction;
import org.neo4j.graphdb.GraphDatabaseService;
import org.neo4j.graphdb.Node;
import org.neo4j.graphdb.PathExpanders;
import org.neo4j.graphdb.Relationship;
import org.neo4j.graphdb.RelationshipType;
import org.neo4j.graphdb.Transaction;

public class Graph {
    private static final RelationshipType LINK = RelationshipType.withName("LINK");
    /** So far queries look, that none runs away. */
    private static final int DEPTH = 5;
    /** Nodes made in one transaction. */
    private static final int BATCH = 5000;

    private final GraphDatabaseService database;
    private final int nodes;
    private final int degree;
    private final int count;
    /** Where each edge ends, by where it begins: node i begins the edges from i * degree on. */
    private final int[] ends;

    private Graph(GraphDatabaseService database, Map<String, String> options) {
        this.database = database;
        nodes = Integer.parseInt(options.get("nodes"));
        degree = Integer.parseInt(options.get("degree"));
        count = Integer.parseInt(options.getOrDefault("count", "0"));
        ends = ends(nodes, degree);
    }

    /** Half of the ends are taken anywhere before the node, half are the ends of other edges: so many have few and few have many. */
    private static int[] ends(int nodes, int degree) {
        Random random = new Random(1);
        int[] ends = new int[nodes * degree];
        for (int node = 1; node < nodes; node++) {
            for (int edge = node * degree; edge < (node + 1) * degree; edge++) {
                boolean anywhere = node < 10 || random.nextBoolean();
                ends[edge] = anywhere ? random.nextInt(node) : ends[degree + random.nextInt((node - 1) * degree)];
            }
        }
        return ends;
    }

    private void make() {
        String[] names = new String[nodes];
        for (int first = 0; first < nodes; first += BATCH) {
            try (Transaction change = database.beginTx()) {
                for (int node = first; node < Math.min(first + BATCH, nodes); node++) {
                    Node made = change.createNode();
                    names[node] = made.getElementId();
                    for (int edge = node * degree; node > 0 && edge < (node + 1) * degree; edge++) {
                        made.createRelationshipTo(change.getNodeByElementId(names[ends[edge]]), LINK);
                    }
                }
                change.commit();
            }
        }
    }

    /** Nodes in the order in which they were made. */
    private String[] names() {
        try (Transaction look = database.beginTx()) {
            return look.getAllNodes().stream().map(Node::getElementId).toArray(String[]::new);
        }
    }

    /** Nodes to delete the first time or the second; not the first nodes, to which most edges lead. */
    private List<Integer> chosen(int time) {
        Random random = new Random(2);
        Set<Integer> chosen = new LinkedHashSet<>();
        while (chosen.size() < 2 * count) {
            chosen.add(nodes / 10 + random.nextInt(nodes - nodes / 10));
        }
        return new ArrayList<>(chosen).subList(time * count, (time + 1) * count);
    }

    /** Ends of the edges that go. */
    private List<String[]> delete(String[] names, int time) {
        List<String[]> edges = new ArrayList<>();
        try (Transaction change = database.beginTx()) {
            for (int node : chosen(time)) {
                Node gone = change.getNodeByElementId(names[node]);
                for (Relationship edge : gone.getRelationships()) {
                    edges.add(new String[] {edge.getStartNode().getElementId(), edge.getEndNode().getElementId()});
                    edge.delete();
                }
                gone.delete();
            }
            change.commit();
        }
        return edges;
    }

    private void insert(String[] names, List<String[]> edges, int time) {
        try (Transaction change = database.beginTx()) {
            Map<String, Node> made = new HashMap<>();
            for (int node : chosen(time)) {
                made.put(names[node], change.createNode());
            }
            for (String[] edge : edges) {
                Node[] both = new Node[2];
                for (int end = 0; end < 2; end++) {
                    Node other = made.get(edge[end]);
                    both[end] = other == null ? change.getNodeByElementId(edge[end]) : other;
                }
                both[0].createRelationshipTo(both[1], LINK);
            }
            change.commit();
        }
    }

    private int query(String[] names, int time) {
        Random random = new Random(3 + time);
        int found = 0;
        for (int number = 0; number < count; number++) {
            try (Transaction look = database.beginTx()) {
                var finder = GraphAlgoFactory.shortestPath(
                        new BasicEvaluationContext(look, database), PathExpanders.forTypeAndDirection(LINK, Direction.BOTH), DEPTH);
                Node from = look.getNodeByElementId(names[random.nextInt(nodes)]);
                Node to = look.getNodeByElementId(names[random.nextInt(nodes)]);
                found += finder.findSinglePath(from, to) == null ? 0 : 1;
            }
        }
        return found;
    }

    private void measure(String what) {
        String[] names = names();
        for (int time = 0; time < 2; time++) {
            List<String[]> edges = what.equals("insert") ? delete(names, time) : List.of();
            long start = System.nanoTime();
            int done = edges.size();
            switch (what) {
                case "delete" -> done = delete(names, time).size();
                case "insert" -> insert(names, edges, time);
                default -> done = query(names, time);
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.println((time == 0 ? "first: " : "seconds: ") + seconds + ", done: " + done);
        }
    }

    public static void main(String[] words) {
        Map<String, String> options = new HashMap<>();
        for (int at = 2; at < words.length; at++) {
            String[] option = words[at].split("=", 2);
            options.put(option[0], option[1]);
        }
        long cache = Long.parseLong(options.getOrDefault("cache", "268435456"));
        DatabaseManagementService service = new DatabaseManagementServiceBuilder(Path.of(words[1]))
                .setConfig(GraphDatabaseSettings.pagecache_memory, cache)
                .setConfig(GraphDatabaseSettings.preallocate_logical_logs, false)
                .setConfig(GraphDatabaseSettings.filewatcher_enabled, false)
                .build();
        try {
            Graph graph = new Graph(service.database("neo4j"), options);
            if (words[0].equals("make")) {
                graph.make();
            } else {
                graph.measure(words[0]);
            }
        } finally {
            service.shutdown();
        }
    }
}
