#!/usr/bin/env sysbench
-- A mix like TPC-C's for sysbench: its nine tables and five transactions, in its proportions (45 new order, 43 payment, 4 each of order status,
-- delivery and stock level), without terminals, thinking times and the rules of its reports. So it is no TPC-C, and gives no tpmC.

sysbench.cmdline.options = {
   warehouses = {"warehouses", 1},
   customers = {"customers of each of a warehouse's ten districts (TPC-C: 3000)", 3000},
   items = {"items (TPC-C: 100000)", 100000},
}

local DISTRICTS = 10
local rand = sysbench.rand.uniform

local TABLES = {
   "warehouse(w_id int primary key, w_name char(10), w_tax decimal(4,4), w_ytd decimal(12,2))",
   [[district(d_w_id int, d_id int, d_name char(10), d_tax decimal(4,4), d_ytd decimal(12,2), d_next_o_id int, primary key(d_w_id, d_id))]],
   [[customer(c_w_id int, c_d_id int, c_id int, c_last varchar(16), c_discount decimal(4,4), c_balance decimal(12,2), c_ytd_payment decimal(12,2),
      c_payment_cnt int, c_delivery_cnt int, c_data varchar(500), primary key(c_w_id, c_d_id, c_id), key(c_w_id, c_d_id, c_last))]],
   [[history(h_id bigint auto_increment primary key, h_c_id int, h_d_id int, h_w_id int, h_date datetime, h_amount decimal(6,2), h_data varchar(24))]],
   [[orders(o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d datetime, o_carrier_id int, o_ol_cnt int, primary key(o_w_id, o_d_id, o_id),
      key(o_w_id, o_d_id, o_c_id, o_id))]],
   "new_orders(no_w_id int, no_d_id int, no_o_id int, primary key(no_w_id, no_d_id, no_o_id))",
   [[order_line(ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_delivery_d datetime, ol_quantity int, ol_amount decimal(6,2),
      ol_dist_info char(24), primary key(ol_w_id, ol_d_id, ol_o_id, ol_number))]],
   "item(i_id int primary key, i_name varchar(24), i_price decimal(5,2), i_data varchar(50))",
   [[stock(s_w_id int, s_i_id int, s_quantity int, s_dist char(24), s_ytd decimal(8,0), s_order_cnt int, s_data varchar(50),
      primary key(s_w_id, s_i_id))]],
}

local SYLLABLES = {"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}

local function last_name(number)
   local digit = function(by) return SYLLABLES[math.floor(number / by) % 10 + 1] end
   return digit(100) .. digit(10) .. digit(1)
end

-- TPC-C's NURand: some are asked for more often than others.
local function uneven(most, from, to)
   return (bit.bor(rand(0, most), rand(from, to)) + 7) % (to - from + 1) + from
end

local function text(len)
   return sysbench.rand.string(string.rep("@", len))
end

-- A bulk insert of what `rows` gives.
local function fill(con, name, rows)
   con:bulk_insert_init("insert into " .. name .. " values")
   rows(function(format, ...) con:bulk_insert_next(format:format(...)) end)
   con:bulk_insert_done()
end

local function fill_orders(con, w)
   local lines = {}
   fill(con, "orders", function(row)
      for d = 1, DISTRICTS do
         for o = 1, sysbench.opt.customers do
            lines[#lines + 1] = {d, o, rand(5, 15)}
            row("(%d,%d,%d,%d,now(),%d,%d)", w, d, o, (o * 7) % sysbench.opt.customers + 1, rand(1, 10), lines[#lines][3])
         end
      end
   end)
   -- The last third is not delivered yet.
   fill(con, "new_orders", function(row)
      for d = 1, DISTRICTS do
         for o = math.floor(sysbench.opt.customers * 2 / 3), sysbench.opt.customers do row("(%d,%d,%d)", w, d, o) end
      end
   end)
   fill(con, "order_line", function(row)
      for _, order in ipairs(lines) do
         for number = 1, order[3] do
            row("(%d,%d,%d,%d,%d,now(),5,%d.5,'%s')", w, order[1], order[2], number, rand(1, sysbench.opt.items), rand(1, 999), text(24))
         end
      end
   end)
end

local function fill_warehouse(con, w)
   con:query(("insert into warehouse values(%d,'%s',0.1,300000)"):format(w, text(10)))
   fill(con, "district", function(row)
      for d = 1, DISTRICTS do row("(%d,%d,'%s',0.1,30000,%d)", w, d, text(10), sysbench.opt.customers + 1) end
   end)
   fill(con, "customer", function(row)
      for d = 1, DISTRICTS do
         for c = 1, sysbench.opt.customers do row("(%d,%d,%d,'%s',0.1,-10,10,1,0,'%s')", w, d, c, last_name((c - 1) % 1000), text(400)) end
      end
   end)
   fill(con, "stock", function(row)
      for i = 1, sysbench.opt.items do row("(%d,%d,%d,'%s',0,0,'%s')", w, i, rand(10, 100), text(24), text(38)) end
   end)
   fill_orders(con, w)
end

function cmd_prepare()
   local con = sysbench.sql.driver():connect()
   for _, columns in ipairs(TABLES) do con:query("create table " .. columns .. " engine=innodb") end
   fill(con, "item", function(row)
      for i = 1, sysbench.opt.items do row("(%d,'%s',%d.5,'%s')", i, text(14), rand(1, 100), text(38)) end
   end)
   for w = 1, sysbench.opt.warehouses do fill_warehouse(con, w) end
end

sysbench.cmdline.commands = {prepare = {cmd_prepare}}

local con

-- A statement, and the first row that it gives.
local function row(format, ...)
   return con:query_row(format:format(...))
end

local function run(format, ...)
   con:query(format:format(...))
end

local function new_order(w, d)
   local c, count = uneven(1023, 1, sysbench.opt.customers), rand(5, 15)
   row("select w_tax, c_discount from warehouse, customer where w_id=%d and c_w_id=%d and c_d_id=%d and c_id=%d", w, w, d, c)
   local o = tonumber((row("select d_next_o_id, d_tax from district where d_w_id=%d and d_id=%d for update", w, d)))
   run("update district set d_next_o_id=%d where d_w_id=%d and d_id=%d", o + 1, w, d)
   run("insert into orders values(%d,%d,%d,%d,now(),null,%d)", w, d, o, c, count)
   run("insert into new_orders values(%d,%d,%d)", w, d, o)
   -- In their order, so that two of them don't wait for each other.
   local items = {}
   for number = 1, count do items[number] = uneven(8191, 1, sysbench.opt.items) end
   table.sort(items)
   for number, i in ipairs(items) do
      local price, quantity = row("select i_price, i_name from item where i_id=%d", i), rand(1, 10)
      -- One in a hundred asks from another warehouse.
      local from = rand(1, 100) == 1 and rand(1, sysbench.opt.warehouses) or w
      local stock = tonumber((row("select s_quantity, s_dist from stock where s_w_id=%d and s_i_id=%d for update", from, i)))
      local left = stock - quantity + (stock - quantity < 10 and 91 or 0)
      run("update stock set s_quantity=%d, s_ytd=s_ytd+%d, s_order_cnt=s_order_cnt+1 where s_w_id=%d and s_i_id=%d", left, quantity, from, i)
      run("insert into order_line values(%d,%d,%d,%d,%d,null,%d,%.2f,'%s')", w, d, o, number, i, quantity, quantity * tonumber(price), text(24))
   end
end

-- Sixty in a hundred are found by name: the one in the middle.
local function customer(w, d, lock)
   if rand(1, 100) > 60 then return uneven(1023, 1, sysbench.opt.customers) end
   local name = last_name(uneven(255, 0, math.min(sysbench.opt.customers, 1000) - 1))
   local found = con:query(("select c_id from customer where c_w_id=%d and c_d_id=%d and c_last='%s' order by c_id%s"):format(w, d, name, lock))
   local at = math.floor((found.nrows - 1) / 2)
   for _ = 1, at do found:fetch_row() end
   return tonumber(found:fetch_row()[1])
end

local function payment(w, d)
   local amount = rand(1, 5000)
   run("update warehouse set w_ytd=w_ytd+%d where w_id=%d", amount, w)
   run("update district set d_ytd=d_ytd+%d where d_w_id=%d and d_id=%d", amount, w, d)
   local c = customer(w, d, " for update")
   run([[update customer set c_balance=c_balance-%d, c_ytd_payment=c_ytd_payment+%d, c_payment_cnt=c_payment_cnt+1
      where c_w_id=%d and c_d_id=%d and c_id=%d]], amount, amount, w, d, c)
   run("insert into history(h_c_id, h_d_id, h_w_id, h_date, h_amount, h_data) values(%d,%d,%d,now(),%d,'%s')", c, d, w, amount, text(24))
end

local function order_status(w, d)
   local c = customer(w, d, "")
   row("select c_balance, c_last from customer where c_w_id=%d and c_d_id=%d and c_id=%d", w, d, c)
   local o = row("select o_id from orders where o_w_id=%d and o_d_id=%d and o_c_id=%d order by o_id desc limit 1", w, d, c)
   if o then run("select ol_i_id, ol_quantity, ol_amount from order_line where ol_w_id=%d and ol_d_id=%d and ol_o_id=%d", w, d, tonumber(o)) end
end

local function deliver(w, d)
   local o = row("select no_o_id from new_orders where no_w_id=%d and no_d_id=%d order by no_o_id limit 1 for update", w, d)
   if not o then return end
   o = tonumber(o)
   run("delete from new_orders where no_w_id=%d and no_d_id=%d and no_o_id=%d", w, d, o)
   local c = tonumber((row("select o_c_id from orders where o_w_id=%d and o_d_id=%d and o_id=%d", w, d, o)))
   run("update orders set o_carrier_id=%d where o_w_id=%d and o_d_id=%d and o_id=%d", rand(1, 10), w, d, o)
   run("update order_line set ol_delivery_d=now() where ol_w_id=%d and ol_d_id=%d and ol_o_id=%d", w, d, o)
   local sum = tonumber((row("select sum(ol_amount) from order_line where ol_w_id=%d and ol_d_id=%d and ol_o_id=%d", w, d, o)))
   run("update customer set c_balance=c_balance+%.2f, c_delivery_cnt=c_delivery_cnt+1 where c_w_id=%d and c_d_id=%d and c_id=%d", sum, w, d, c)
end

local function delivery(w)
   for d = 1, DISTRICTS do deliver(w, d) end
end

local function stock_level(w, d)
   local next_o = tonumber((row("select d_next_o_id from district where d_w_id=%d and d_id=%d", w, d)))
   row([[select count(distinct s_i_id) from order_line, stock where ol_w_id=%d and ol_d_id=%d and ol_o_id>=%d and ol_o_id<%d
      and s_w_id=%d and s_i_id=ol_i_id and s_quantity<%d]], w, d, next_o - 20, next_o, w, rand(10, 20))
end

function thread_init()
   con = sysbench.sql.driver():connect()
end

function thread_done()
   con:disconnect()
end

function event()
   local w, d, which = rand(1, sysbench.opt.warehouses), rand(1, DISTRICTS), rand(1, 100)
   con:query("begin")
   if which <= 45 then new_order(w, d)
   elseif which <= 88 then payment(w, d)
   elseif which <= 92 then order_status(w, d)
   elseif which <= 96 then delivery(w)
   else stock_level(w, d) end
   -- One new order in a hundred is taken back.
   con:query(which <= 45 and rand(1, 100) == 1 and "rollback" or "commit")
end

-- After a deadlock, or too long a wait.
function sysbench.hooks.before_restart_event()
   con:query("rollback")
end
