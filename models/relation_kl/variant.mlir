// Relation KL: the divergence of one row of a student's relation from the teacher's, which is a constant. The loss is
// the sum of all rows divided by (valid tokens * heads).
//
//   R_tj = softmax_j(scale q_t.k_j), of the teacher and of the student, over j <= t, or over all j unless `causal`
//   kl_t = sum_j R^teacher_tj (log R^teacher_tj - log R^student_tj)
//
// Without keys, queries are compared with themselves. Tokens whose `mask` is not positive are left out.

!Ds = tensor<?xf64, #stretto.row<Ds>>
!Ds_per_G = tensor<?xf64, #stretto.row<Ds, G>>
!Dt = tensor<?xf64, #stretto.row<Dt>>
!Dt_per_G = tensor<?xf64, #stretto.row<Dt, G>>
!condition_number = tensor<i1, #stretto.row<()>>
!condition_number_per_1 = tensor<i1, #stretto.row<(), 1>>
!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>

stretto.variant @relation_kl(%q_s: !Ds, %q_t: !Dt, %k_s: !Ds_per_G {stretto.optional},
                             %k_t: !Dt_per_G {stretto.optional}, %mask: !number_per_1 {stretto.optional}) -> !number
    options(scale_s = "Ds**-0.5", scale_t = "Dt**-0.5", causal = true)
    attributes {summary = "Kullback-Leibler divergence of one row of a student's relation from its teacher's. The teacher is a constant."} {
  %has_k_s = stretto.present %k_s : !Ds_per_G
  %has_k_t = stretto.present %k_t : !Dt_per_G
  %has_mask = stretto.present %mask : !number_per_1
  %teacher_q = stretto.stop_gradient %q_t : !Dt
  %teacher_k = stretto.stop_gradient %k_t : !Dt_per_G
  %scale_s = stretto.option "scale_s" : !Ds
  %student_qs = arith.mulf %q_s, %scale_s : !Ds
  %scale_t = stretto.option "scale_t" : !Dt
  %teacher_qs = arith.mulf %teacher_q, %scale_t : !Dt
  %zero = stretto.constant 0.0 : !number_per_1
  %causal = stretto.option "causal" : i1
  %kl = scf.if %causal -> !number {
    %row, %lse_teacher, %lse_student = stretto.lookback divergence from %zero {
      %teacher_k_j = scf.if %has_k_t -> !Dt {
        %key = stretto.past %teacher_k : !Dt_per_G
        %keys = stretto.broadcast %key : !Dt_per_G to !Dt
        scf.yield %keys : !Dt
      } else {
        %itself = stretto.past %teacher_q : !Dt
        scf.yield %itself : !Dt
      }
      %z_teacher = stretto.dot %teacher_qs, %teacher_k_j : !Dt -> !number
      %student_k_j = scf.if %has_k_s -> !Ds {
        %key = stretto.past %k_s : !Ds_per_G
        %keys = stretto.broadcast %key : !Ds_per_G to !Ds
        scf.yield %keys : !Ds
      } else {
        %itself = stretto.past %q_s : !Ds
        scf.yield %itself : !Ds
      }
      %z_student = stretto.dot %student_qs, %student_k_j : !Ds -> !number
      %teacher, %student = scf.if %has_mask -> (!number, !number) {
        %t_valid = arith.cmpf ogt, %mask, %zero : !number_per_1
        %mask_j = stretto.past %mask : !number_per_1
        %j_valid = arith.cmpf ogt, %mask_j, %zero : !number_per_1
        %both_valid = arith.andi %t_valid, %j_valid : !condition_number_per_1
        %valid = stretto.broadcast %both_valid : !condition_number_per_1 to !condition_number
        %left_out = stretto.constant 0xFFF0000000000000 : !number
        %teacher_valid = arith.select %valid, %z_teacher, %left_out : !condition_number, !number
        %student_valid = arith.select %valid, %z_student, %left_out : !condition_number, !number
        scf.yield %teacher_valid, %student_valid : !number, !number
      } else {
        scf.yield %z_teacher, %z_student : !number, !number
      }
      stretto.yield %teacher, %student : !number, !number
    } : !number, !number, !number
    scf.yield %row : !number
  } else {
    %row, %lse_teacher, %lse_student = stretto.lookback divergence from %zero to_end {
      %teacher_k_j = scf.if %has_k_t -> !Dt {
        %key = stretto.past %teacher_k : !Dt_per_G
        %keys = stretto.broadcast %key : !Dt_per_G to !Dt
        scf.yield %keys : !Dt
      } else {
        %itself = stretto.past %teacher_q : !Dt
        scf.yield %itself : !Dt
      }
      %z_teacher = stretto.dot %teacher_qs, %teacher_k_j : !Dt -> !number
      %student_k_j = scf.if %has_k_s -> !Ds {
        %key = stretto.past %k_s : !Ds_per_G
        %keys = stretto.broadcast %key : !Ds_per_G to !Ds
        scf.yield %keys : !Ds
      } else {
        %itself = stretto.past %q_s : !Ds
        scf.yield %itself : !Ds
      }
      %z_student = stretto.dot %student_qs, %student_k_j : !Ds -> !number
      %teacher, %student = scf.if %has_mask -> (!number, !number) {
        %t_valid = arith.cmpf ogt, %mask, %zero : !number_per_1
        %mask_j = stretto.past %mask : !number_per_1
        %j_valid = arith.cmpf ogt, %mask_j, %zero : !number_per_1
        %both_valid = arith.andi %t_valid, %j_valid : !condition_number_per_1
        %valid = stretto.broadcast %both_valid : !condition_number_per_1 to !condition_number
        %left_out = stretto.constant 0xFFF0000000000000 : !number
        %teacher_valid = arith.select %valid, %z_teacher, %left_out : !condition_number, !number
        %student_valid = arith.select %valid, %z_student, %left_out : !condition_number, !number
        scf.yield %teacher_valid, %student_valid : !number, !number
      } else {
        scf.yield %z_teacher, %z_student : !number, !number
      }
      stretto.yield %teacher, %student : !number, !number
    } : !number, !number, !number
    scf.yield %row : !number
  }
  stretto.yield %kl : !number
}
